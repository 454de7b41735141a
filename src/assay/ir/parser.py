"""Reads the text form of a graph, which `assay.ir.printer` describes and writes.

What is read has the form of a graph; whether it keeps the rules of the IR is for `assay.ir.verify` to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from assay.errors import ImportFailed, LimitExceeded
from assay.ir import dtypes
from assay.ir.dims import Dim, parse_dim
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Attr, Graph, Node, Origin, Value
from assay.ir.printer import READ, WORD, tensor_of, unpack, unquote
from assay.ir.types import (
    LINKS,
    LinkType,
    MapType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    UnknownType,
)
from assay.limits import DEFAULT, Limits

T = TypeVar("T")

MAX_DEPTH = 100
"""How deeply types, tuples and origins may nest; regions nest as deeply as `Limits.nesting` says."""

_QUOTED = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_TOKEN = re.compile(
    rf"(?P<value>%[0-9]+)|(?P<bytes>b{_QUOTED})|(?P<zlib>zlib{_QUOTED})|(?P<string>{_QUOTED})|(?P<word>{WORD})"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|-inf)|(?P<mark>\.\.\.|[(){}\[\]<>,:=?])|(?P<end>\Z)"
)
_SPACE = re.compile(r"[ \t\r\n]*")
_DIM_MARK = re.compile(r"`[^`]*`|[()\[\],]")

_CONTAINERS: dict[str, Callable[..., Type]] = {"seq": SequenceType, "opt": OptionalType, "map": MapType}
_RANKS: dict[str, Shape] = {"": (), "*": None}
_DTYPES = {dtype.name: dtype for dtype in dtypes.ALL}


def parse_graph(text: str, limits: Limits = DEFAULT) -> Graph:
    """The graph that `text` describes; `ImportFailed` says where the text is wrong and what was expected."""
    parser = _Parser(text, limits)
    return parser.all_of(parser.graph(0, None))


def parse_type(text: str) -> Type:
    """The type that `text` describes, in the form in which `str` writes it; `ImportFailed` if it describes none."""
    parser = _Parser(text)
    return parser.all_of(parser.type(0))


class _Tokens:
    """A text and the current token in it: its `kind`, its text `word` and where it starts, `at`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.move(0)

    def move(self, at: int) -> None:
        """Make the first token that starts at or after `at` the current one."""
        space = _SPACE.match(self.text, at)
        self.at = space.end() if space else at
        token = _TOKEN.match(self.text, self.at)
        if token is None or token.lastgroup is None:
            self.fail(f"no token starts with {self.text[self.at : self.at + 20]!r}", self.at)
        self.kind, self.word = token.lastgroup, token.group()

    def next(self) -> None:
        self.move(self.at + len(self.word))

    def take(self, word: str) -> bool:
        """Step over `word` if it comes next, and say whether it did."""
        found = self.word == word
        if found:
            self.next()
        return found

    def need(self, word: str) -> None:
        if not self.take(word):
            self.expected(f"'{word}'")

    def read(self, kind: str, what: str, convert: Callable[[str], T]) -> T:
        """Step over a token of `kind`; what `convert` makes of it."""
        if self.kind != kind:
            self.expected(what)
        value = self.attempt(lambda: convert(self.word), what, self.at)
        self.next()
        return value

    def attempt(self, make: Callable[[], T], what: str, at: int) -> T:
        try:
            return make()
        except (ValueError, ArithmeticError, LookupError) as error:
            self.fail(f"expected {what}: {error}", at)

    def items(self, item: Callable[[], T], close: str) -> list[T]:
        """Items separated by commas, up to and with `close`."""
        found: list[T] = []
        while self.word != close:
            found.append(item())
            if not self.take(","):
                break
        if not self.take(close):
            self.expected(f"',' or '{close}'")
        return found

    def all_of(self, found: T) -> T:
        """What was found, if the text ends here."""
        if self.kind != "end":
            self.expected("the end of the text")
        return found

    def expected(self, what: str) -> NoReturn:
        found = "the end of the text" if self.kind == "end" else repr(self.word[:40])
        self.fail(f"expected {what}, found {found}", self.at)

    def fail(self, message: str, at: int, error: type[ImportFailed] = ImportFailed) -> NoReturn:
        line, column = self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
        raise error(message, where=f"line {line}, column {column} of the graph's text")


class _Parser(_Tokens):
    """One method for each rule of the grammar; `depth` counts how deeply a rule is nested in itself."""

    def __init__(self, text: str, limits: Limits = DEFAULT) -> None:
        super().__init__(text)
        self.limits = limits
        self.values: dict[int, Value] = {}
        self.dims: dict[str, Dim] = {}

    def graph(self, depth: int, around: str | None) -> Graph:
        """A graph; `around` is the level of the graph that it is a region of. At another level it is isolated."""
        self.guard(depth, self.limits.nesting)
        self.need("graph")
        name, level = self.string("the graph's name"), self.plain("the graph's level")
        outside, self.values = self.values, self.values if around in (None, level) else {}
        self.need("(")
        inputs = self.items(self.input, ")")
        self.need("{")
        constants: dict[Value, Array] = {}
        while self.take("const"):
            constants.update([self.constant()])
        nodes: list[Node] = []
        while self.kind == "value" or self.word == "_":
            nodes.append(self.node(depth, level))
        names: dict[str, Value] = {}
        while self.take("name"):
            self.enter(names, lambda: self.string("a name"), self.use)
        if not self.take("return"):
            self.expected("a node, 'name' or 'return'" if nodes or names else "'const', a node, 'name' or 'return'")
        outputs = self.items(self.output, "}")
        sources, input_names = self.unzip(inputs)
        results, output_names = self.unzip(outputs)
        self.values = outside
        return Graph(name, sources, results, tuple(nodes), constants, names, input_names, output_names, level)

    def input(self) -> tuple[Value, str | None]:
        at, number = self.at, self.number()
        name = self.optional_string()
        return self.define(at, number, self.type_after_colon()), name

    def output(self) -> tuple[Value, str | None]:
        return self.use(), self.optional_string()

    def unzip(self, pairs: list[tuple[Value, str | None]]) -> tuple[tuple[Value, ...], tuple[str, ...]]:
        names = tuple(name for _, name in pairs if name is not None)
        if names and len(names) < len(pairs):
            self.fail("expected a name for each input or output, or for none of them", self.at)
        return tuple(value for value, _ in pairs), names

    def constant(self) -> tuple[Value, Array]:
        at, number, kind = self.typed()
        value = self.define(at, number, kind)
        self.need("=")
        if not isinstance(kind, TensorType):
            self.fail(f"expected a tensor as constant, found {kind}", at)
        return value, self.tensor(kind)

    def node(self, depth: int, level: str) -> Node:
        outputs = [] if self.take("_") else [self.typed()]
        while outputs and self.take(","):
            outputs.append(self.typed())
        self.need("=")
        op = self.plain("an op")
        self.need("(")
        inputs = self.items(self.operand, ")")
        attrs = self.attrs() if self.take("{") else dict[str, Attr]()
        regions = self.regions(depth, level) if self.take("[") else ()
        self.need("from")
        origin = self.origin()
        defined = tuple(self.define(*output) for output in outputs)
        return Node(op, tuple(inputs), defined, origin, attrs, regions)

    def operand(self) -> Value | None:
        return None if self.take("_") else self.use()

    def regions(self, depth: int, level: str) -> tuple[Graph, ...]:
        regions: list[Graph] = []
        while not self.take("]"):
            regions.append(self.graph(depth + 1, level))
        return tuple(regions)

    def attrs(self) -> dict[str, Attr]:
        found: dict[str, Attr] = {}
        self.items(lambda: self.enter(found, lambda: self.plain("an attribute's name"), self.attr), "}")
        return found

    def enter(self, table: dict[str, T], key: Callable[[], str], value: Callable[[], T]) -> None:
        """Read `key = value` into `table`."""
        at, name = self.at, key()
        if name in table:
            self.fail(f"'{name}' is given twice", at)
        self.need("=")
        table[name] = value()

    def origin(self, depth: int = 0) -> Origin:
        self.guard(depth, MAX_DEPTH)
        op, name = self.string("the op of an origin"), self.optional_string() or ""
        module = self.string("a module") if self.take("in") else ""
        file, line = self.place() if self.take("at") else ("", 0)
        passes = self.listed(lambda: self.string("a pass")) if self.take("passes") else ()
        merged = self.listed(lambda: self.origin(depth + 1)) if self.take("merged") else ()
        return Origin(op, name, module, file, line, passes, merged)

    def place(self) -> tuple[str, int]:
        file = self.string("a file")
        self.need(":")
        return file, self.read("number", "a line number", int)

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        self.need("[")
        return tuple(self.items(item, "]"))

    def typed(self) -> tuple[int, int, Type]:
        """A value that is being defined: where, its id and its type."""
        return self.at, self.number(), self.type_after_colon()

    def define(self, at: int, number: int, kind: Type) -> Value:
        if number in self.values:
            self.fail(f"%{number} is defined twice", at)
        return self.values.setdefault(number, Value(number, kind))

    def use(self) -> Value:
        at, number = self.at, self.number()
        if number not in self.values:
            self.fail(f"%{number} is not defined before it is used", at)
        return self.values[number]

    def number(self) -> int:
        return self.read("value", "a value", lambda word: int(word[1:]))

    def type_after_colon(self) -> Type:
        self.need(":")
        return self.type(0)

    def type(self, depth: int) -> Type:
        self.guard(depth, MAX_DEPTH)
        if self.take("?"):
            return UnknownType()
        if self.word in LINKS:
            return self.link()
        if self.word not in _CONTAINERS:
            return TensorType(self.dtype(), self.shape())
        container = _CONTAINERS[self.word]
        self.next()
        self.need("<")
        key: list[DType] = []
        if container is MapType:
            key.append(self.dtype())
            self.need(",")
        kind = container(*key, self.type(depth + 1))
        self.need(">")
        return kind

    def link(self) -> Type:
        at, kind = self.at, self.plain("a link")
        content = ""
        if self.take("<"):
            content = self.string("the hash of what is linked")
            self.need(">")
        return self.attempt(lambda: LinkType(kind, content), "a link", at)

    def dtype(self) -> DType:
        return self.read("word", "a type", dtypes.by_name)

    def shape(self) -> Shape:
        if self.word != "[":
            self.expected("'['")
        texts: list[tuple[str, int]] = []
        start, depth = self.at + 1, 0
        for mark in _DIM_MARK.finditer(self.text, start):
            char = mark.group()
            if depth == 0 and char in (",", "]"):
                texts.append((self.text[start : mark.start()].strip(), start))
                start = mark.end()
                if char == "]":
                    break
            depth += (char in ("(", "[")) - (char in (")", "]"))
        else:
            self.fail("expected ']' after the dims of a tensor, found the end of the text", len(self.text))
        self.move(start)
        if len(texts) == 1 and texts[0][0] in _RANKS:
            return _RANKS[texts[0][0]]
        return tuple(self.dim(text, at) for text, at in texts)

    def dim(self, text: str, at: int) -> Dim:
        if text not in self.dims:
            self.dims[text] = self.attempt(lambda: parse_dim(text), "a dim", at)
        return self.dims[text]

    def attr(self, depth: int = 0) -> Attr:
        self.guard(depth, MAX_DEPTH)
        if self.take("["):
            return tuple(self.items(lambda: self.attr(depth + 1), "]"))
        if self.word not in _DTYPES:
            return self.scalar()
        dtype = self.dtype()
        return self.tensor(TensorType(dtype, self.shape())) if self.word == "[" else dtype

    def scalar(self) -> Attr:
        if self.kind not in READ:
            self.expected("a literal")
        return self.read(self.kind, "a literal", READ[self.kind])

    def tensor(self, kind: TensorType) -> Array:
        at, dtype, shape = self.at, kind.dtype, self.static(kind)
        count = math.prod(shape)
        if count * dtype.numpy.itemsize > self.limits.tensor_bytes:
            self.fail(f"{kind} is larger than {self.limits.tensor_bytes} bytes", at, LimitExceeded)
        if self.word == "...":
            self.fail("expected data: this text was printed with large tensors left out, so it cannot be read", at)
        if self.kind == "zlib" and dtype is not dtypes.string:
            flat = self.read("zlib", f"{kind} as base64 of zlib", lambda word: unpack(word[5:-1], dtype, count))
        else:
            values = self.listed(self.scalar) if shape else (self.scalar(),)
            flat = self.attempt(lambda: tensor_of(dtype, values), f"literals that fit {dtype}", at)
        if flat.size != count:
            self.fail(f"expected {count} elements, found {flat.size}", at)
        array = self.attempt(lambda: flat.reshape(shape), "a shape that NumPy can hold", at)
        array.setflags(write=False)
        return array

    def static(self, kind: TensorType) -> tuple[int, ...]:
        dims = tuple(dim for dim in kind.shape or () if isinstance(dim, int) and dim >= 0)
        if kind.shape is None or len(dims) < len(kind.shape) or len(dims) > self.limits.rank:
            self.fail(
                f"expected at most {self.limits.rank} constant dims for a tensor with data, found {kind}", self.at
            )
        return dims

    def plain(self, what: str) -> str:
        return self.read("word", what, str) if self.kind == "word" else self.string(what)

    def string(self, what: str) -> str:
        return self.read("string", f"{what} in quotes", unquote)

    def optional_string(self) -> str | None:
        return self.string("a name") if self.kind == "string" else None

    def guard(self, depth: int, limit: int) -> None:
        if depth > limit:
            self.fail(f"nested more than {limit} deep", self.at, LimitExceeded)
