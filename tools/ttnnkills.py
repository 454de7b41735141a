"""Kill the worker of Tenstorrent's library at random moments while a program is put to it.

    python tools/ttnnkills.py [COUNT]

Each kill must be a typed error that names the call under way (or come too late), the next compilation must work and
its program give the same numbers, and at the end no process and no folder may be left.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import CompileFailed
from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.library import Library, LibraryFailed, open_library

LATE = "done before"


def network(layers: int = 6) -> Graph:
    """Something like a transformer: a few dozen calls."""
    b, rng = Builder(), np.random.default_rng(0)
    x = first = b.input(TensorType(dtypes.f32, (1, 64, 128)))
    for _ in range(layers):
        weights = [b.constant(rng.normal(size=(128, 128)).astype(np.float32) / 11) for _ in range(2)]
        scores = b.softmax(b.matmul(x, b.transpose(x, perm=(0, 2, 1))), axis=-1)
        x = b.add(x, b.gelu(b.matmul(b.matmul(scores, x), weights[0])))
        x = b.layer_norm(b.matmul(x, weights[1]))
    return b.finish("network", [first], [x])


def attempt(target: TtnnTarget, graph: Graph, library: Library, wait: float) -> str:
    """What came of a compilation whose worker was killed after so many seconds: the call, or that it was too late."""
    library.about()
    pid = library.pid
    assert pid is not None
    killer = threading.Timer(wait, os.kill, (pid, signal.SIGKILL))
    killer.start()
    try:
        target.compile(graph, {})
        return LATE
    except CompileFailed as error:
        cause = error.__cause__
        assert isinstance(cause, LibraryFailed), f"an untyped error: {cause!r}"
        assert cause.op, "no call is named"
        return cause.op
    finally:
        killer.join()


def computed(target: TtnnTarget, graph: Graph) -> Any:
    """The numbers of the program, compiled anew."""
    device = target.open()
    x = np.random.default_rng(1).normal(size=(1, 64, 128)).astype(np.float32)
    (found,), _ = target.compile(graph, {}).submit([device.upload(x)])
    return device.download(found)


def left_behind(folders: set[Path]) -> list[str]:
    """Processes and folders that should be gone."""
    lists = Path("/proc/self/task").glob("*/children")
    processes = [f"process {pid}" for each in lists for pid in each.read_text().split()]
    return processes + [str(each) for each in notes() - folders]


def notes() -> set[Path]:
    """The folders of workers."""
    return set(Path(tempfile.gettempdir()).glob("assay-ttnn-*"))


def main() -> None:
    """Kill, look, and sum up."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    before = notes()
    library = open_library()
    if isinstance(library, str):
        sys.exit(library)
    target, graph, chance = TtnnTarget("exact", DEFAULT), network(), random.Random(0)
    right = computed(target, graph)
    started = time.perf_counter()
    computed(target, graph)
    usual = time.perf_counter() - started
    found: Counter[str] = Counter()
    while found.total() - found[LATE] < count:
        found[attempt(target, graph, library, chance.uniform(0.0, usual))] += 1
        np.testing.assert_array_equal(computed(target, graph), right)
    library.close()
    left = left_behind(before)
    killed = ", ".join(f"{number} in {op}" for op, number in found.most_common() if op != LATE)
    print(f"{count} kills: {killed}; {found[LATE]} came too late; after each the next compilation and run were right")
    print("left behind: " + (", ".join(left) or "nothing"))
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
