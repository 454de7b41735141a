"""The native target as a whole: sizes, threads, errors, observation, and machines on which something is missing."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from programs import compiled_on, placed_on

from assay.errors import LimitExceeded, RunFailed
from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.targets.base import Event
from assay.targets.cpu import CpuTarget, toolchain
from assay.targets.reference import ReferenceTarget
from assay.targets.threads import fixed_threads

TARGET = CpuTarget("exact", DEFAULT)


def block(width: int = 48) -> Graph:
    """A bit of a transformer over a symbolic length: products, softmax, norm, fused elementwise ends."""
    b = Builder()
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Value:
        return b.constant(rng.normal(size=shape, scale=0.2).astype(np.float32))

    x = b.input(TensorType(dtypes.f32, (symbol("n", 1), width)))
    hidden = b.gelu(b.add(b.matmul(x, weight(width, 70)), weight(70)))
    mixed = b.matmul(b.softmax(b.matmul(hidden, b.transpose(hidden, perm=(1, 0))), axis=1), hidden)
    out = b.layer_norm(b.add(x, b.matmul(mixed, weight(70, width))), weight(width), weight(width), axis=1)
    return b.finish("block", [x], [out, b.reduce_max(out, axes=(0,))])


def compiled(graph: Graph) -> Program:
    return compiled_on(TARGET, graph)


def rows(count: int, width: int = 48) -> Any:
    return np.random.default_rng(count).normal(size=(count, width)).astype(np.float32)


def test_one_program_serves_every_length_and_compiles_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = block()
    program = compiled(graph)
    assert {placement.target for placement in program.plan.placements} == {"cpu"}

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("a kernel is compiled for a new length")

    monkeypatch.setattr(toolchain.Toolchain, "load", refuse)
    oracle = ReferenceTarget().compile(graph)
    for count in (1, 2, 7, 33, 200, 5):
        for mine, right in zip(program.run([rows(count)]), oracle.run([rows(count)]), strict=True):
            np.testing.assert_allclose(mine, right, rtol=2e-5, atol=2e-5)


def test_a_view_without_elements() -> None:
    compiled = torch.compile(lambda x: x.flip(0, 2), backend="assay", options={"target": "cpu"}, dynamic=True)
    for shape in ((5, 3, 10), (5, 0, 10)):
        x = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
        torch.testing.assert_close(compiled(x), x.flip(0, 2))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    found: list[list[bytes]] = []
    for threads in (1, 2, 3, 8):
        program = compiled_on(CpuTarget("exact", DEFAULT, fixed_threads(threads)), block())
        found.append([array.tobytes() for array in program.run([rows(300)])])
    assert all(each == found[0] for each in found)


def test_threads_may_share_a_program() -> None:
    program = compiled(block())
    alone = {count: program.run([rows(count)])[0].tobytes() for count in range(1, 40)}
    with ThreadPoolExecutor(8) as workers:
        shared = dict(workers.map(lambda count: (count, program.run([rows(count)])[0].tobytes()), range(1, 40)))
    assert shared == alone


def test_an_observer_is_told_of_every_node_and_its_true_value() -> None:
    graph = block()
    events: list[Event] = []
    right: list[Event] = []
    placed_on(TARGET, graph).run([rows(9)], events.append)
    ReferenceTarget().compile(graph).run([rows(9)], right.append)
    assert [event.node.op for event in events] == [event.node.op for event in right]
    for mine, theirs in zip(events, right, strict=True):
        np.testing.assert_allclose(mine.results[0], theirs.results[0], rtol=2e-5, atol=2e-5)
    assert sum(event.seconds for event in events) > 0


def test_memory_is_used_again_after_the_last_use_of_a_value() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (100, 1000)))
    value = x
    for _ in range(8):
        value = b.softmax(b.transpose(value, perm=(1, 0)), axis=1)
    program = compiled(b.finish("chain", [x], [value]))
    taken = program.submit([np.ones((100, 1000), np.float32)]).peak_bytes
    assert taken is not None
    assert 100 * 1000 * 4 <= taken <= 2.5 * 100 * 1000 * 4


def test_the_peak_of_a_run_is_its_own_whoever_runs_beside_it() -> None:
    program = compiled(block())
    alone = {count: program.submit([rows(count)]).peak_bytes for count in range(1, 40)}
    assert len(set(alone.values())) > 10
    with ThreadPoolExecutor(8) as workers:
        shared = dict(workers.map(lambda count: (count, program.submit([rows(count)]).peak_bytes), range(1, 40)))
    assert shared == alone


def test_a_position_outside_is_an_error_that_names_the_node() -> None:
    b = Builder()
    x, positions = b.input(TensorType(dtypes.f32, (5, 2))), b.input(TensorType(dtypes.i64, (3,)))
    program = compiled(b.finish("g", [x, positions], [b.gather(x, positions, axis=0)]))
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(program.run([data, np.array([0, 4, -1])])[0], data[[0, 4, -1]])
    with pytest.raises(RunFailed, match="gather"):
        program.run([data, np.array([0, 5, 1])])
    np.testing.assert_array_equal(program.run([data, np.array([0, 4, -1])])[0], data[[0, 4, -1]])


def test_sizes_are_checked_before_memory_is_asked_for() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (symbol("n", 1),)))
    cube = b.add(b.add(x, b.unsqueeze(x, axes=(1,))), b.unsqueeze(x, axes=(1, 2)))
    program = compiled(b.finish("g", [x], [cube]))
    assert program.run([np.ones(3, np.float32)])[0].tolist() == np.full((3, 3, 3), 3.0).tolist()
    for count in (3000, 3_000_000):  # 108 GB; more bytes than 64 bits count
        with pytest.raises(LimitExceeded):
            program.run([np.ones(count, np.float32)])


def test_inputs_may_lie_anyhow_and_are_left_alone() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (4, 6)))
    program = compiled(b.finish("g", [x], [b.add(x, 1.0), b.transpose(x, perm=(1, 0)), b.relu(b.neg(x))]))
    whole = np.arange(48, dtype=np.float32).reshape(6, 8) - 20
    for array in (whole[:, 2:6].T, whole[::-1, :4].T, np.broadcast_to(whole[0, :6], (4, 6))):
        before = array.copy()
        plus, turned, cut = program.run([array])
        np.testing.assert_array_equal(plus, array + 1)
        np.testing.assert_array_equal(turned, array.T)
        np.testing.assert_array_equal(cut, np.maximum(-array, 0))
        np.testing.assert_array_equal(array, before)


# --- machines on which something is missing

SCRIPT = textwrap.dedent(
    """
    import sys, warnings
    import numpy as np
    from assay.ir import dtypes
    from assay.ir.types import TensorType
    from assay.ops.builder import Builder
    from assay.runtime.session import Session, SessionOptions

    b = Builder()
    x = b.input(TensorType(dtypes.f32, (4, 5)))
    graph = b.finish("g", [x], [b.softmax(b.tanh(x), axis=1)], input_names=("x",), output_names=("y",))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        session = Session(graph, SessionOptions(target="cpu"))
        data = np.linspace(-2, 2, 20, dtype=np.float32).reshape(4, 5)
        found = session.run({"x": data})["y"]
    e = np.exp(np.tanh(data.astype(np.float64)))
    assert np.allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5), found
    for warning in told:
        print("warning:", warning.message)
    for node in session.explain().nodes:
        print(node.op, node.target, node.reason)
    """
)


def run(folder: Path, before: str = "", **environment: str) -> str:
    """What a process of its own prints."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "ASSAY_TARGET")}
    merged = {**kept, "ASSAY_CACHE_DIR": str(folder), **environment}
    command = [sys.executable, "-c", before + SCRIPT]
    done = subprocess.run(command, env=merged, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_compiler_the_oracle_runs_and_one_sentence_says_so(tmp_path: Path) -> None:
    told = run(tmp_path / "cache", PATH="")
    assert told.count("there is no C compiler: everything runs on the reference target") == 1
    assert "tanh reference there is no C compiler" in told
    assert "cpu" not in told


def test_a_compiler_that_fails_is_no_end(tmp_path: Path) -> None:
    told = run(tmp_path / "cache", CC="/bin/false")
    assert "the C compiler '/bin/false' failed: it ended with 1" in told
    assert "tanh reference" in told


def test_a_cache_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    told = run(tmp_path / "file" / "cache")
    assert "nothing is cached" in told
    assert "tanh cpu" in told


def test_a_full_disk_is_a_warning(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    told = run(tmp_path / "cache", limit)
    assert "warning:" in told
    assert "tanh reference" in told


def test_damaged_entries_are_made_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert "tanh cpu" in run(cache)
    for entry in cache.glob("*.entry"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0xFF
        entry.write_bytes(data)
    told = run(cache)
    assert "tanh cpu" in told
    assert "warning:" not in told


def test_ten_processes_fill_one_empty_cache(tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as starters:
        told = list(starters.map(lambda _: run(tmp_path / "cache"), range(10)))
    assert all("tanh cpu" in text and "warning:" not in text for text in told)
