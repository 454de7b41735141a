"""The text form of graphs: it reads back exactly, and damaged text is refused with a place and a reason."""

from __future__ import annotations

import base64
import contextlib
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from assay.errors import ImportFailed, LimitExceeded
from assay.ir import dtypes
from assay.ir.dtypes import Array
from assay.ir.graph import Graph, Node, Origin, Value
from assay.ir.parser import MAX_DEPTH, parse_graph, parse_type
from assay.ir.printer import INLINE, print_graph
from assay.ir.types import TensorType
from assay.ir.verify import verify
from assay.limits import DEFAULT

SAMPLE = """\
graph "main" core (%0 "x": f32[batch, 3], %1 "go": bool[], %7 "s": map<string, opt<seq<i64[*]>>>) {
  const %2: f32[2] = [1.0, -inf]
  const %3: f32[20] = zlib"DATA"
  const %9: string[] = "a\\n\\u{d800}\\"b"
  %4: f32[2*batch, n[1..8]], %40: f32[?] = conv(%0, _) {b = b"\\u{0}", k = [2, 2.5, none, [f32]], "to do" = i8[1] [3]}\
 from "onnx.Conv@11" "conv1" in "layer1" at "f.py":12 passes ["fold"]
  _ = "ai.x::print"(%9) from "onnx.Print"
  %5: f32[2] = if(%1) [
    graph "then" core () {
      return %2
    }
    graph "else" "level 2" (%6: f32[2], %2: ?) {
      %8: f32[2] = add(%6, %2) from "onnx.Add@14"
      name "inner" = %8
      return %8
    }
  ] from "onnx.If@16" merged ["onnx.Not@1" "n" merged ["a"], "b"]
  name "conv1_out" = %4
  return %4 "out", %5 "other"
}
""".replace("DATA", base64.b64encode(zlib.compress(bytes(80))).decode())


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    back = parse_graph(text)
    assert print_graph(back) == text
    return back


# ---- what it looks like --------------------------------------------------------------------------------------


def test_the_sample_prints_as_it_is() -> None:
    graph = parse_graph(SAMPLE)
    assert print_graph(graph) == SAMPLE
    verify(graph)
    conv, _, branch = graph.nodes
    assert conv.attrs["k"] == (2, 2.5, None, (dtypes.f32,))
    assert conv.attrs["b"] == b"\0"
    assert conv.inputs[1] is None
    assert branch.regions[0].outputs[0] is next(iter(graph.constants))
    assert branch.regions[1].inputs[1] is not next(iter(graph.constants))  # at another level, its ids are its own
    assert graph.names["conv1_out"] is conv.outputs[0]
    assert branch.origin.merged == (Origin("onnx.Not@1", "n", merged=(Origin("a"),)), Origin("b"))
    assert conv.origin == Origin("onnx.Conv@11", "conv1", "layer1", "f.py", 12, ("fold",))


def one_constant(array: Array) -> Graph:
    value = Value(0, TensorType(dtypes.of(array), array.shape))
    return Graph("g", (), (value,), (), {value: array})


def bits(dtype: Any, pattern: Any, *values: int) -> Array:
    return np.array(values, pattern).view(dtype)


def spelled(array: Array) -> str:
    """How the content of a constant is printed, once it has been read back."""
    graph = one_constant(array)
    round_trip(graph)
    return print_graph(graph).split(" = ")[1].split("\n")[0]


LITERALS: list[tuple[Array, str]] = [
    (np.array(0.1, np.float32), "0.1"),
    (np.array([0.1, -0.0, np.nan, np.inf, -np.inf, 5e-324]), "[0.1, -0.0, nan, inf, -inf, 5e-324]"),
    # 7.038531e-26 is the shortest for it, but as a double lies half way to the next float32
    (bits(np.float32, np.uint32, 0x15AE43FD), "[7.038530691851209e-26]"),
    (np.array([65504, 0.1], np.float16), "[65504.0, 0.0999755859375]"),
    (np.array([[1, -2], [3, 4]], np.int8), "[1, -2, 3, 4]"),
    (np.array([2**64 - 1], np.uint64), "[18446744073709551615]"),
    (np.array([True, False]), "[true, false]"),
    (np.array([[]], np.complex64), "[]"),
    (np.array([1.5, -2], ml_dtypes.bfloat16), "[1.5, -2.0]"),
    (np.array([-8, 7], ml_dtypes.int4), "[-8, 7]"),
    (np.array([448.0], ml_dtypes.float8_e4m3fn), "[448.0]"),
    (np.array(["é", 'a"\\\n\x7f', "\ud83d\ude00"], object), '["é", "a\\"\\\\\\n\\u{7f}", "\\u{d83d}\\u{de00}"]'),
    (np.array(["s"] * 20, object), "[" + ", ".join(['"s"'] * 20) + "]"),
    (np.arange(6, dtype=np.int32).reshape(2, 3).T, "[0, 3, 1, 4, 2, 5]"),
]


@pytest.mark.parametrize(("array", "text"), LITERALS, ids=[text[:30] for _, text in LITERALS])
def test_small_constants_are_literals(array: Array, text: str) -> None:
    assert spelled(array) == text


PACKED: dict[str, Array] = {
    "too large": np.zeros(INLINE + 1, np.float32),
    "a payload in a NaN": bits(np.float32, np.uint32, 0x7FC00001),
    "a negative NaN": bits(np.float64, np.uint64, 0xFFF8000000000000),
    "a signalling NaN": bits(np.float16, np.uint16, 0x7C01),
    "a true that is not 1": bits(np.bool_, np.uint8, 2),
    "complex": np.array([1j], np.complex64),
    "an int4 with high bits": bits(ml_dtypes.int4, np.uint8, 0xF7),
}


@pytest.mark.parametrize("array", PACKED.values(), ids=PACKED.keys())
def test_other_constants_are_packed(array: Array) -> None:
    assert spelled(array).startswith('zlib"')


def test_every_float16_and_bfloat16_reads_back() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        for chunk in np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(-1, INLINE):
            array = parse_graph(print_graph(one_constant(chunk))).constants
            assert next(iter(array.values())).tobytes() == chunk.tobytes()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=INLINE))
def test_every_float32_reads_back(patterns: list[int]) -> None:
    round_trip(one_constant(bits(np.float32, np.uint32, *patterns)))


def test_what_is_read_cannot_be_written_to() -> None:
    for array in (np.zeros(3), np.zeros(30)):
        (back,) = parse_graph(print_graph(one_constant(array))).constants.values()
        assert not back.flags.writeable


@pytest.mark.parametrize("value", [np.float64(1), np.int64(1), [1], {}, 1j, object()])
def test_an_attribute_of_another_kind_is_refused(value: Any) -> None:
    node = Node("op", (), (), Origin("o"), {"key": value})
    with pytest.raises(TypeError, match="attribute cannot be"):
        print_graph(Graph("g", (), (), (node,)))


def test_large_tensors_can_be_left_out() -> None:
    node = Node("op", (), (), Origin("o"), {"key": np.zeros(4)})
    value = Value(0, TensorType(dtypes.i64, (3,)))
    graph = Graph("g", (), (value,), (node,), {value: np.arange(3)})
    assert print_graph(graph, elide_above=4) == print_graph(graph)
    assert "[0, 1, 2]" in print_graph(graph, elide_above=3)
    assert "key = f64[4] ...}" in print_graph(graph, elide_above=3)
    assert "const %0: i64[3] = ..." in print_graph(graph, elide_above=2)
    for limit in (0, 3):
        with pytest.raises(ImportFailed, match="left out"):
            parse_graph(print_graph(graph, elide_above=limit))


# ---- what is refused -----------------------------------------------------------------------------------------


def test_text_that_is_cut_off_anywhere_is_refused() -> None:
    for length in range(len(SAMPLE.rstrip())):
        with pytest.raises(ImportFailed, match=r"line \d+, column \d+"):
            parse_graph(SAMPLE[:length])


@settings(max_examples=400, deadline=None)
@given(at=st.integers(0, len(SAMPLE)), drop=st.integers(0, 4), put=st.text('0%"[]{}()<>,:=_`\\ab.-\n\x00é', max_size=3))
def test_damaged_text_never_raises_anything_but_import_failed(at: int, drop: int, put: str) -> None:
    with contextlib.suppress(ImportFailed):
        round_trip(parse_graph(SAMPLE[:at] + put + SAMPLE[at + drop :]))


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def const(kind: str, data: str) -> str:
    return f'graph "g" core () {{\n  const %0: {kind} = {data}\n  return %0\n}}'


def node(text: str) -> str:
    return f'graph "g" core (%0: f32[]) {{\n  {text}\n  return %0\n}}'


ZEROS = zlib.compress(bytes(8))
REFUSED: dict[str, tuple[str, str, int, int]] = {
    "no graph": ("", "expected 'graph', found the end of the text", 1, 1),
    "more than a graph": (SAMPLE + "x", "expected the end of the text, found 'x'", 20, 1),
    "an odd character": (node("%1: f32[] = $"), r"no token starts with '\$", 2, 15),
    "a string without an end": ('graph "g', "no token starts with", 1, 7),
    "no name": ("graph g", "expected the graph's name in quotes, found 'g'", 1, 7),
    "a bad escape": (r'graph "\q"', r"there is no escape", 1, 7),
    "an escape beyond Unicode": (r'graph "\u{110000}"', "expected the graph's name", 1, 7),
    "bytes beyond 255": (node('_ = f() {a = b"\\u{100}"} from "f"'), "expected a literal", 2, 16),
    "no comma": ('graph "g" core (%0: f32[] %1', r"expected ',' or '\)', found '%1'", 1, 27),
    "some names": ('graph "g" core (%0 "a": f32[], %1: f32[]) { return }', "a name for each", 1, 53),
    "an unknown statement": (node("let"), "expected 'const', a node, 'name' or 'return', found 'let'", 2, 3),
    "a late constant": (node('_ = f() from "f"\nconst'), "expected a node, 'name' or 'return'", 3, 1),
    "an unknown type": ('graph "g" core (%0: f33', "expected a type: 'f33'", 1, 21),
    "no type": ('graph "g" core (%0: 3', "expected a type, found '3'", 1, 21),
    "a type without dims": ('graph "g" core (%0: f32)', r"expected '\[', found '\)'", 1, 24),
    "a bad dim": ('graph "g" core (%0: f32[a b])', "expected a dim", 1, 25),
    "a missing dim": ('graph "g" core (%0: f32[a,,b])', "expected a dim", 1, 27),
    "a division by zero": ('graph "g" core (%0: f32[1//0])', "expected a dim", 1, 25),
    "an undefined value": (node('_ = f(%1) from "f"'), "%1 is not defined before", 2, 9),
    "a value of its own": (node('%1: f32[] = f(%1) from "f"'), "%1 is not defined before", 2, 17),
    "a capture at another level": (node('_ = f() [graph "r" l () { return %0'), "%0 is not defined", 2, 36),
    "a definition in a region": (node('_ = f() [graph "r" core (%0: ?)'), "%0 is defined twice", 2, 28),
    "two definitions": (node('%0: f32[] = f() from "f"'), "%0 is defined twice", 2, 3),
    "two attributes": (node('_ = f() {a = 1, a = 2} from "f"'), "'a' is given twice", 2, 19),
    "two names": (node('name "a" = %0\nname "a" = %0'), "'a' is given twice", 3, 6),
    "no origin": (node("_ = f()"), "expected 'from', found 'return'", 3, 3),
    "an unknown word": (node("_ = f() {a = yes}"), "expected a literal: 'yes' stands", 2, 16),
    "no literal": (node("_ = f() {a = =}"), "expected a literal, found '='", 2, 16),
    "too large a float": (node("_ = f() {a = 1e999}"), "too large for a float", 2, 16),
    "too large an int": (node(f"_ = f() {{a = {'9' * 9999}}}"), "expected a literal", 2, 16),
    "too large an id": (node(f"%{'9' * 9999}: f32[] = f()"), "expected a value", 2, 3),
    "a sequence as constant": (const("seq<f32[]>", "1.0"), "expected a tensor as constant", 2, 9),
    "a symbolic constant": (const("f32[n]", "[1.0]"), "constant dims", 2, 22),
    "a constant of any rank": (const("f32[*]", "[1.0]"), "constant dims", 2, 22),
    "a negative dim": (const("f32[-1]", "[]"), "constant dims", 2, 23),
    "too many dims": (const(f"f32[{', '.join(['1'] * 33)}]", "[1.0]"), "at most 32 constant dims", 2, 118),
    "too large a dim": (const(f"f32[0, {2**70}]", "[]"), "a shape that NumPy can hold", 2, 46),
    "too much memory": (const(f"i8[{2**40}]", 'zlib""'), "is larger than", 2, 33),
    "too few elements": (const("i8[3]", "[1, 2]"), "expected 3 elements, found 2", 2, 21),
    "an element that does not fit": (const("u8[1]", "[256]"), "literals that fit u8", 2, 21),
    "an int4 that does not fit": (const("i4[1]", "[8]"), "literals that fit i4", 2, 21),
    "an element of another kind": (const("i8[1]", "[true]"), "not a literal of i8", 2, 21),
    "a word as string": (const("string[1]", "[string]"), "expected a literal", 2, 26),
    "packed strings": (const("string[1]", f'zlib"{packed(ZEROS)}"'), r"expected '\[', found 'zlib", 2, 25),
    "data that is not base64": (const("i8[8]", 'zlib"a*b="'), "as base64 of zlib", 2, 21),
    "data that is not ASCII": (const("i8[8]", 'zlib"é"'), "as base64 of zlib", 2, 21),
    "data that is not zlib": (const("i8[8]", f'zlib"{packed(b"12345678")}"'), "as base64 of zlib", 2, 21),
    "data that ends early": (const("i8[8]", f'zlib"{packed(ZEROS[:-1])}"'), "the data is not 8 bytes", 2, 21),
    "data with more behind it": (const("i8[8]", f'zlib"{packed(ZEROS + b"x")}"'), "the data is not 8 bytes", 2, 21),
    "too little data": (const("i8[9]", f'zlib"{packed(ZEROS)}"'), "the data is not 9 bytes", 2, 21),
    "too much data": (const("i8[7]", f'zlib"{packed(ZEROS)}"'), "the data is not 7 bytes", 2, 21),
}


@pytest.mark.parametrize(("text", "message", "line", "column"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_text_is_refused(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(ImportFailed, match=message) as caught:
        parse_graph(text)
    assert caught.value.where == f"line {line}, column {column} of the graph's text"


def test_a_bomb_is_not_inflated() -> None:
    bomb = const("i8[8]", f'zlib"{packed(zlib.compress(bytes(1 << 26)))}"')
    tracemalloc.start()
    try:
        with pytest.raises(ImportFailed, match="the data is not 8 bytes"):
            parse_graph(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def nested_regions(depth: int) -> str:
    return 'graph "g" c () { _ = f() [' * depth + 'graph "g" c () { return }' + '] from "f" return }' * depth


NESTED: dict[str, tuple[Callable[[int], str], int]] = {
    "regions": (nested_regions, DEFAULT.nesting),
    "tuples": (lambda n: node(f'_ = f() {{a = {"[" * n}1{"]" * n}}} from "f"'), MAX_DEPTH),
    "types": (lambda n: f'graph "g" c (%0: {"seq<" * n}f32[]{">" * n}) {{ return }}', MAX_DEPTH),
    "origins": (lambda n: node("_ = f() from " + '"f" merged [' * n + '"f"' + "]" * n), MAX_DEPTH),
}


@pytest.mark.parametrize(("make", "limit"), NESTED.values(), ids=NESTED.keys())
def test_nesting_is_bounded(make: Callable[[int], str], limit: int) -> None:
    round_trip(parse_graph(make(limit)))
    for depth in (limit + 1, 100_000):
        with pytest.raises(LimitExceeded, match=f"nested more than {limit} deep"):
            parse_graph(make(depth))


def test_deep_dims_are_refused() -> None:
    with pytest.raises(ImportFailed, match="expected a dim"):
        parse_graph(f'graph "g" c (%0: f32[{"(" * 99999}1{")" * 99999}])')


def test_a_type_alone_reads_back_and_nothing_may_follow() -> None:
    for text in ("?", "f32[]", "opt<?>", "map<string, opt<seq<i64[n, ?]>>>", "bf16[*]"):
        assert str(parse_type(text)) == text
    with pytest.raises(ImportFailed, match="expected the end of the text, found 'x'"):
        parse_type("f32[] x")
