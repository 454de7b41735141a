"""The native target as a whole: kernels, threads, memory, and machines on which something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import compiled_on
from suites.program_cases import block, rows

from assay.ir import dtypes
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.runtime.program import Program
from assay.targets.cpu import CpuTarget, toolchain
from assay.targets.reference import ReferenceTarget
from assay.targets.threads import fixed_threads

TARGET = CpuTarget("exact", DEFAULT)


def compiled(graph: Graph) -> Program:
    return compiled_on(TARGET, graph)


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


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f16])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_causal_attention_looks_at_keys_that_it_leaves_out_if_they_are_not_finite(
    side: int, odd: float, dtype: dtypes.DType
) -> None:
    """As the oracle does: what is hidden is multiplied with zero. More queries than a block has, and panels of one."""
    rng = np.random.default_rng(side)
    given = [rng.normal(size=(2, 3, 131, 8)).astype(dtype.numpy) for _ in range(3)]
    for head, place in enumerate((40, 130, 129)):
        given[side][0, head, place, 3] = odd
    b = Builder()
    q, k, v = (b.input(TensorType(dtype, (2, 3, 131, 8))) for _ in range(3))
    graph = b.finish("causal", [q, k, v], [b.sdpa(q, k, v, None, causal=True)])
    mine, right = compiled(graph).run(given)[0], ReferenceTarget().compile(graph).run(given)[0]
    assert not np.isfinite(right[0]).all()
    assert np.isfinite(right[1]).all()
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(right))
    np.testing.assert_allclose(mine.astype(np.float32), right.astype(np.float32), rtol=3e-3, atol=3e-3)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    found: list[list[bytes]] = []
    for threads in (1, 2, 3, 8):
        program = compiled_on(CpuTarget("exact", DEFAULT, fixed_threads(threads)), block())
        found.append([array.tobytes() for array in program.run([rows(300)])])
    assert all(each == found[0] for each in found)


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
