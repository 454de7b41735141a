"""The text form of a graph, written out, and its literals both ways. `assay.ir.parser` reads it back exactly.

    graph "main" core (%0 "x": f32[batch, 3], %1 "go": bool[]) {
      const %2: f32[2] = [1.0, 2.0]
      const %3: f32[64, 3, 7, 7] = zlib"<base64 of zlib of the bytes, little-endian, in C order>"
      %4: f32[batch, 64] = conv(%0, %3, _) {strides = [2, 2]} from "onnx.Conv@11" "conv1" in "layer1" at "f.py":12
      %5: f32[] = if(%1) [
        graph "then" core () {
          return %2
        }
      ] from "onnx.If@16" passes ["fold"] merged ["onnx.Not@1"]
      name "conv1_out" = %4
      return %4 "out", %5 "other"
    }

`_` stands for an absent input, or for the outputs of a node that has none. Words that are not plain
(ops, levels, attribute names) are quoted. An attribute is `none`, `true`, `3`, `3.0`, `"text"`, `b"bytes"`,
a dtype `f32`, a tensor `f32[2] [1.0, 2.0]` or a tuple of these `[1, 2]`. Tensors of up to `INLINE` elements
and all string tensors are lists of literals in C order, a scalar one literal.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, cast

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Attr, Graph, Node, Origin, Value
from assay.ir.types import TensorType

INLINE = 16
"""The most elements that a tensor of numbers has when it is printed as literals."""

WORD = r"[A-Za-z_][A-Za-z0-9_.@]*"
"""What a word must look like to stand without quotes."""

ESCAPES = {'"': '"', "\\": "\\", "\n": "n", "\r": "r", "\t": "t"}
"""Characters with an escape of their own; others that do not print are `\\u{hex}`."""

_UNESCAPED = {code: char for char, code in ESCAPES.items()}
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-f]{1,6})\}|(.))")
_PLAIN_WORD = re.compile(WORD)

_WORDS: dict[str, Attr] = {"none": None, "true": True, "false": False, "inf": math.inf, "nan": math.nan}
_ELEMENTS: dict[str, tuple[type, ...]] = {
    "float": (float, int),
    "int": (int,),
    "uint": (int,),
    "bool": (bool,),
    "complex": (),
    "string": (str,),
}
"""The literals that a tensor of a kind may be made of."""


def print_graph(graph: Graph, elide_above: int | None = None) -> str:
    """The text of `graph`. Tensors of more than `elide_above` elements become `...`, which no parser reads."""
    return "\n".join(_graph(graph, "", elide_above)) + "\n"


def quote(text: str, plain: Callable[[str], bool] = str.isprintable) -> str:
    """`text` as a literal on one line; characters that are not `plain` are escaped."""
    if plain(text) and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escape(c) if c in ESCAPES or not plain(c) else c for c in text) + '"'


def unquote(literal: str) -> str:
    """The inverse of `quote`; ValueError where an escape means nothing."""
    return _ESCAPE.sub(_unescape, literal[1:-1]) if "\\" in literal else literal[1:-1]


def pack(array: Array) -> str:
    """The bytes of `array`, compressed, in ASCII."""
    return base64.b64encode(zlib.compress(array.tobytes())).decode("ascii")


def unpack(text: str, dtype: DType, count: int) -> Array:
    """The inverse of `pack`, flat; never inflates more than `count` elements need. ValueError for anything else."""
    size, stream = count * dtype.numpy.itemsize, zlib.decompressobj()
    try:
        data = stream.decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"the data is not {size} bytes long")
    return np.frombuffer(data, dtype.numpy) if size else np.empty(0, dtype.numpy)


def tensor_of(dtype: DType, values: Sequence[Any]) -> Array:
    """The flat array that literals denote; ValueError or OverflowError for one that is no such element."""
    if any(type(value) not in _ELEMENTS[dtype.kind] for value in values):
        raise ValueError(f"not a literal of {dtype}")
    if dtype.is_integer and values and not dtype.limits[0] <= min(values) <= max(values) <= dtype.limits[1]:
        raise OverflowError(f"{dtype} holds {dtype.limits[0]} to {dtype.limits[1]} only")
    with np.errstate(over="ignore"):
        return np.array(values, dtype.numpy)


def _number(literal: str) -> int | float:
    if literal.lstrip("-").isdigit():
        return int(literal)
    value = float(literal)
    if math.isinf(value) and literal != "-inf":
        raise ValueError("the number is too large for a float")
    return value


def _word_literal(literal: str) -> Attr:
    if literal not in _WORDS:
        raise ValueError(f"'{literal}' stands for nothing")
    return _WORDS[literal]


def _is_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


READ: dict[str, Callable[[str], Attr]] = {
    "word": _word_literal,
    "number": _number,
    "string": unquote,
    "bytes": lambda literal: unquote(literal[1:]).encode("latin-1"),
}
"""How to read a literal by the kind of its token; ValueError for a bad one."""

_SPELL: dict[type, Callable[[Any], str]] = {
    NoneType: lambda _: "none",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: repr,
    str: quote,
    bytes: lambda value: "b" + quote(value.decode("latin-1"), _is_ascii),
    DType: repr,
}


def _graph(graph: Graph, indent: str, elide: int | None) -> Iterator[str]:
    inner = indent + "  "
    inputs = (f"{v}{name}: {v.type}" for v, name in _named(graph.inputs, graph.input_names))
    outputs = (f" {v}{name}" for v, name in _named(graph.outputs, graph.output_names))
    yield f"{indent}graph {quote(graph.name)} {_word(graph.level)} ({', '.join(inputs)}) {{"
    for value, array in graph.constants.items():
        yield f"{inner}const {_typed(value)} = {_data(array, elide)}"
    for node in graph.nodes:
        yield from _node(node, inner, elide)
    for name, value in graph.names.items():
        yield f"{inner}name {quote(name)} = {value}"
    yield f"{inner}return{','.join(outputs)}"
    yield f"{indent}}}"


def _node(node: Node, indent: str, elide: int | None) -> Iterator[str]:
    outputs = ", ".join(map(_typed, node.outputs)) or "_"
    inputs = ", ".join("_" if value is None else str(value) for value in node.inputs)
    attrs = ", ".join(f"{_word(key)} = {_attr(value, elide)}" for key, value in node.attrs.items())
    line = f"{indent}{outputs} = {_word(node.op)}({inputs})" + (f" {{{attrs}}}" if attrs else "")
    if node.regions:
        yield f"{line} ["
        for region in node.regions:
            yield from _graph(region, indent + "  ", elide)
        line = f"{indent}]"
    yield f"{line} from {_origin(node.origin)}"


def _origin(origin: Origin) -> str:
    parts = {
        "": quote(origin.name) if origin.name else "",
        "in ": quote(origin.module) if origin.module else "",
        "at ": f"{quote(origin.file)}:{origin.line}" if origin.file or origin.line else "",
        "passes ": _list(map(quote, origin.passes)) if origin.passes else "",
        "merged ": _list(map(_origin, origin.merged)) if origin.merged else "",
    }
    return quote(origin.op) + "".join(f" {lead}{part}" for lead, part in parts.items() if part)


def _named(values: tuple[Value, ...], names: tuple[str, ...]) -> Iterator[tuple[Value, str]]:
    """The values with what follows each: its name, or nothing where values have no names."""
    for index, value in enumerate(values):
        yield value, f" {quote(names[index])}" if index < len(names) else ""


def _typed(value: Value) -> str:
    return f"{value}: {value.type}"


def _word(text: str) -> str:
    return text if _PLAIN_WORD.fullmatch(text) else quote(text)


def _list(items: Iterable[str]) -> str:
    return "[" + ", ".join(items) + "]"


def _escape(char: str) -> str:
    return "\\" + ESCAPES.get(char, f"u{{{ord(char):x}}}")


def _unescape(match: re.Match[str]) -> str:
    code, char = match.groups()
    if code is None and char not in _UNESCAPED:
        raise ValueError(f"there is no escape '{match.group()}'")
    return _UNESCAPED[char] if code is None else chr(int(code, 16))


def _attr(value: Attr, elide: int | None) -> str:
    if isinstance(value, tuple):
        return _list(_attr(item, elide) for item in cast(tuple[Attr, ...], value))
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        return f"{TensorType(dtypes.of(array), array.shape)} {_data(array, elide)}"
    kind = type(cast(object, value))
    if kind not in _SPELL:
        raise TypeError(f"an attribute cannot be of type {kind.__name__}")
    return _SPELL[kind](value)


def _data(array: Array, elide: int | None) -> str:
    if elide is not None and array.size > elide:
        return "..."
    values = _literals(array, dtypes.of(array))
    if values is None:
        return f'zlib"{pack(array)}"'
    spelled = [_SPELL[type(value)](value) for value in values]
    return _list(spelled) if array.ndim else spelled[0]


def _literals(array: Array, dtype: DType) -> list[Any] | None:
    """The elements as Python values whose literals read back bit for bit; None if bytes serve better."""
    exact: list[Any] = array.ravel().tolist()
    if dtype is dtypes.string or not exact:
        return exact
    if array.size > INLINE or dtype.kind == "complex":
        return None
    exact = [math.nan if item != item else item for item in exact]  # a literal has no room for a NaN's payload
    short = [float(str(item)) for item in array.ravel()] if dtype is dtypes.f32 else exact
    for values in (short, exact):
        if tensor_of(dtype, values).tobytes() == array.tobytes():
            return values
    return None
