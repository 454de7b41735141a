"""Compiled programs as bytes, and from bytes: the same results, shared weights, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.dtypes import Array, read_only
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.ops.builder import Builder
from assay.runtime import kept
from assay.runtime.kept import KeptProgram, program_bytes, read_program
from assay.runtime.options import SessionOptions
from assay.runtime.session import Session
from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.threads import available_threads

WEIGHT = read_only(np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(64, 8))
TABLE = read_only(np.arange(8, dtype=np.float32))
FEEDS = {"unread": np.zeros(3, np.float32), "x": np.linspace(0, 1, 24, dtype=np.float32).reshape(3, 8)}


def graph() -> Graph:
    """Rows of one table, scaled by another; an input that nobody reads, and outputs in another order than made."""
    b = Builder()
    rows = symbol("rows", 1)
    unread = b.input(TensorType(dtypes.f32, (rows,)))
    x = b.input(TensorType(dtypes.f32, (rows, 8)))
    picked = b.gather(b.constant(WEIGHT), b.constant(np.array([5, 1])), axis=0)
    first = b.mul(x, b.constant(TABLE))
    second = b.sqrt(b.add(first, b.reduce_max(picked, axes=(0,))))
    return b.finish("small", (unread, x), (second, first), input_names=("unread", "x"), output_names=("root", "scaled"))


def session(target: str = "cpu", **more: Any) -> Session:
    return Session(graph(), SessionOptions(target=target, **more))


def as_bytes(made: Session, shared: dict[str, Array]) -> bytes | None:
    return program_bytes(made.source, made.only_program, shared)


def read(content: bytes, shared: dict[str, Array]) -> KeptProgram:
    toolchain = shared_toolchain()
    assert toolchain is not None
    return read_program(content, shared, toolchain, available_threads)


def test_a_kept_program_gives_what_its_session_gives() -> None:
    made = session()
    content = as_bytes(made, {})
    assert content is not None
    found, expected = read(content, {}).run(FEEDS), made.run(FEEDS)
    assert list(found) == list(expected) == ["root", "scaled"]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


def test_shared_arrays_are_no_part_of_the_bytes_and_are_read_where_they_lie() -> None:
    made = session()
    alone, named = as_bytes(made, {}), as_bytes(made, {"table": TABLE})
    assert alone is not None
    assert named is not None
    assert TABLE.tobytes() in alone
    assert TABLE.tobytes() not in named
    program = read(named, {"table": TABLE})
    assert any(np.shares_memory(each, TABLE) for each in program.code.constants)
    np.testing.assert_array_equal(program.run(FEEDS)["root"], made.run(FEEDS)["root"])
    with pytest.raises(KeyError):
        read(named, {})


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_bytes_that_are_no_program_are_refused(cut: int) -> None:
    content = as_bytes(session(), {})
    assert content is not None
    for damaged in (content[:cut], content + b"\0"):
        with pytest.raises((ValueError, TypeError, LookupError)):
            read(damaged, {})


def test_what_is_not_one_piece_of_native_code_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_bytes(session("reference"), {}) is None
    assert program_bytes(graph(), None, {}) is None
    monkeypatch.setattr(kept, "MOST", TABLE.nbytes - 1)
    assert as_bytes(session(), {}) is None


def test_an_output_that_is_an_input_is_not_kept() -> None:
    b = Builder()
    x = b.input(TensorType(dtypes.f32, (4,)))
    made = b.finish("same", (x,), (b.sqrt(x), x), input_names=("x",), output_names=("root", "x"))
    assert as_bytes(Session(made, SessionOptions(target="cpu")), {}) is None


def test_constants_begin_at_lines_of_the_cache() -> None:
    content = as_bytes(session(), {})
    assert content is not None
    assert all(each.__array_interface__["data"][0] % 64 == 0 for each in read(content, {}).code.constants if each.size)
