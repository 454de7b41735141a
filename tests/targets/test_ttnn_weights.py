"""Weights on a Tenstorrent card: what does not fit is said before anything runs; narrower matrices are rounded so."""

from __future__ import annotations

import re
from math import prod

import ml_dtypes
import numpy as np
import pytest
from programs import compiled_on

from assay.errors import CompileFailed, NotFound
from assay.ir.dtypes import bf16, f32, i64
from assay.ir.graph import Graph, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.device_model import ModelledExecutable
from assay.targets.ttnn.formats import ENVIRONMENT, block_float, chosen_weights
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.plan import matrices_of, sizes


@pytest.fixture
def target(library: Library) -> TtnnTarget:
    return TtnnTarget("exact", DEFAULT)


def llama_7b(b: Builder, ids: Value) -> tuple[list[Value], Value]:
    """The weights of Llama-7B, as inputs that hold nothing, and what is computed with each; attention is left out."""
    weights: list[Value] = []

    def weight(*shape: int) -> Value:
        weights.append(b.input(TensorType(bf16, shape)))
        return weights[-1]

    def by(x: Value, rows: int, columns: int) -> Value:
        return b.emit("ttnn.linear", x, weight(rows, columns), None, transposed=True)[0]

    width, inner, tokens = 4096, 11008, 32000
    x = b.gather(weight(tokens, width), ids, axis=0)
    for _ in range(32):
        normed = b.rms_norm(x, weight(width), axis=-1)
        q, k, v = (by(normed, width, width) for _ in range(3))
        x = b.add(x, by(b.add(q, b.add(k, v)), width, width))
        normed = b.rms_norm(x, weight(width), axis=-1)
        x = b.add(x, by(b.mul(by(normed, inner, width), by(normed, inner, width)), width, inner))
    return weights, by(b.rms_norm(x, weight(width), axis=-1), tokens, width)


@pytest.fixture(scope="module")
def llama() -> Graph:
    b = Builder()
    ids = b.input(TensorType(i64, (1, 32)))
    weights, result = llama_7b(b, ids)
    return b.finish("llama", [ids, *weights], [result])


def test_llama_7b_does_not_fit_in_bfloat16_and_says_where(target: TtnnTarget, llama: Graph) -> None:
    count = sum(prod(sizes(value)) for value in llama.inputs[1:])
    assert 6.7e9 < count < 6.8e9
    with pytest.raises(CompileFailed, match=r"from the one on that ttnn.linear .* reads") as caught:
        target.compile(llama, {})
    told = re.search(r"weights and inputs take ([\d,]+) MiB of its 12,\d\d\d MiB", caught.value.message)
    assert told is not None
    taken = int(told.group(1).replace(",", ""))
    assert 0 <= taken - (count * 2 >> 20) < 50, "vectors take whole tiles"
    assert f"{ENVIRONMENT}=bfloat8_b" in caught.value.hint


def test_llama_7b_fits_in_bfloat8_b(target: TtnnTarget, llama: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "bfloat8_b")
    compiled = target.compile(llama, {})
    assert isinstance(compiled, ModelledExecutable)
    _, memory, _ = compiled.notes()
    given, most, whole = (float(figure.replace(",", "")) for figure in memory.rows[0][1:4])
    assert 6_900 < given < most < 7_500 < whole


def test_matrices_are_rounded_as_the_card_holds_them(target: TtnnTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(64, 32)).astype(np.float32), np.eye(64, dtype=np.float32)
    b = Builder()
    given = b.input(TensorType(f32, (64, 64)))
    graph = b.finish("g", [given], [b.matmul(given, w)])
    monkeypatch.setenv(ENVIRONMENT, "bfloat8_b")
    wide = w.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(compiled_on(target, graph).run([x])[0], block_float(wide, 7))
    monkeypatch.setenv(ENVIRONMENT, "bfloat16")
    np.testing.assert_array_equal(compiled_on(target, graph).run([x])[0], wide)


def test_only_what_products_alone_read_is_narrower() -> None:
    b = Builder()
    x, ids = b.input(TensorType(f32, (4, 8))), b.input(TensorType(i64, (3,)))
    table, w, bias = (b.constant(np.ones(shape, np.float32)) for shape in ((8, 8), (8, 5), (1, 5)))
    rows = b.matmul(b.gather(table, ids, axis=0), table)
    graph = b.finish("g", [x, ids], [b.add(b.matmul(x, w), bias), rows])
    assert matrices_of(graph) == {w}


def test_a_format_that_nobody_knows_is_an_error() -> None:
    assert chosen_weights({}) == chosen_weights({ENVIRONMENT: "bfloat16"}) == ""
    assert chosen_weights({ENVIRONMENT: "bfloat4_b"}) == "bfloat4_b"
    with pytest.raises(NotFound, match="bfloat9"):
        chosen_weights({ENVIRONMENT: "bfloat9"})
