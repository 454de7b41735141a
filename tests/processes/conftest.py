"""Workers that tests of processes share."""

from __future__ import annotations

from collections.abc import Iterator

import process_services as services
import pytest

from assay.processes import Nursery, Worker, WorkerLimits


@pytest.fixture
def deadly() -> Iterator[Worker]:
    with Worker(services.deadly, limits=WorkerLimits(seconds=30)) as worker:
        yield worker


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery(["numpy"])
    yield nursery
    nursery.close()
