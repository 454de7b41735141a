"""Profiles as ONNX Runtime writes them: a Chrome trace, one event for each node that ran and for each run."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from assay.ir import dtypes
from assay.ir.graph import Node
from assay.ir.types import TensorType
from assay.runtime.ort.describe import type_string
from assay.runtime.ort.values import is_array
from assay.targets.base import Event


class Profiler:
    """Collects events until it ends, and then writes them into a file whose name tells when it began."""

    def __init__(self, prefix: str) -> None:
        self._zero = time.perf_counter()
        self.start_ns = time.time_ns()
        began = datetime.fromtimestamp(self.start_ns / 1e9)
        self._path = Path(f"{prefix}_{began:%Y-%m-%d_%H-%M-%S}_{began.microsecond // 1000}.json")
        self._events: list[dict[str, Any]] = []
        self._ended = False
        self._lock = threading.Lock()

    def span(self, name: str, started: float) -> None:
        """Something of the session's own that took from `started` (by `time.perf_counter`) until now."""
        self._add("Session", name, started, time.perf_counter() - started, {})

    def nodes(self, provider: Callable[[Node], str]) -> Callable[[Event], None]:
        """An observer for one run, of whose nodes each begins where the one before it ended."""
        at = time.perf_counter()

        def note(event: Event) -> None:
            nonlocal at
            origin = event.node.origin
            arguments = {
                "op_name": origin.op.rpartition(".")[2],
                "core_op": event.node.op,
                "provider": provider(event.node),
                "output_type_shape": [_described(result) for result in event.results],
                "output_size": str(sum(getattr(result, "nbytes", 0) for result in event.results)),
            }
            self._add("Node", f"{origin.name}_kernel_time", at, event.seconds, arguments)
            at += event.seconds

        return note

    def end(self) -> str:
        """Write the file; its path, or nothing if it was written before."""
        with self._lock:
            if self._ended:
                return ""
            self._ended = True
            self._path.write_text(json.dumps(self._events), encoding="utf-8")
            return str(self._path)

    def _add(self, kind: str, name: str, started: float, seconds: float, arguments: Mapping[str, Any]) -> None:
        micro = 1e6
        event = {
            "cat": kind,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": round(seconds * micro),
            "ts": round((started - self._zero) * micro),
            "ph": "X",
            "name": name,
            "args": dict(arguments),
        }
        with self._lock:
            self._events.append(event)


def _described(result: Any) -> dict[str, Sequence[int]]:
    if not is_array(result):
        return {type(result).__name__: []}
    kind = type_string(TensorType(dtypes.of(result), ()))
    return {kind.removeprefix("tensor(").removesuffix(")"): list(result.shape)}
