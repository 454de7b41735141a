"""A peer that crashes, hangs or lacks an op when its model says so; for the tests of the harness."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.evidence import attempts
from assay.processes import Handler


class Deadly:
    """Does what its model's content says."""

    def __init__(self, model: bytes) -> None:
        self.model = model

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if self.model == b"crash":
            os.abort()
        if self.model == b"hang":
            time.sleep(60)
        if self.model == b"lack":
            raise NotImplementedError("no such op\n(at some place)")
        return {"y": np.float32(len(self.model))}


class DeadlyEngine:
    name = "deadly"
    load = Deadly


def deadly(spec: str) -> Handler:
    """What the process of a worker runs, with the deadly engine in place of a real one."""
    attempts.engine = lambda name: DeadlyEngine()  # type: ignore[assignment]
    return attempts.service(spec)


def die_at_once(spec: str) -> Handler:
    """What a broken installation does."""
    os._exit(3)
