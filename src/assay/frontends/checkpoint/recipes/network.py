"""A graph of a model under construction: a builder, the checkpoint's tensors, and where in the model we are."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from assay.errors import ImportFailed, hint_for
from assay.frontends.checkpoint.stored import Checkpoint, StoredTensor
from assay.ir import dtypes
from assay.ir.dims import Dim
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph, Origin, Value
from assay.ir.types import TensorType
from assay.limits import DEFAULT, Limits
from assay.ops.block_formats import BlockFormat
from assay.ops.builder import Builder
from assay.ops.parts import converted

Naming = Callable[[str], str]
"""How a file calls the tensor that a recipe asks for."""


@dataclass(frozen=True)
class GraphOptions:
    """How graphs are made: which positions `logits` are of (`all`, or the `last` of a call), and the dtype that is
    computed in."""

    logits: str = "all"
    dtype: DType = dtypes.f32
    limits: Limits = DEFAULT


class Tensors:
    """The tensors of a checkpoint by the names that recipes use. Each that is asked for must have the stated sizes."""

    def __init__(self, checkpoint: Checkpoint, where: str, naming: Naming = str) -> None:
        self._stored, self._where, self._naming = checkpoint.tensors, where, naming
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return self._naming(name) in self._stored

    def starting_with(self, prefix: str) -> bool:
        """Whether the name of some tensor in the file begins so."""
        return any(name.startswith(prefix) for name in self._stored)

    def matrix(self, name: str) -> tuple[int, int]:
        """Rows and columns of a tensor, for models that are described by sizes alone."""
        found = self._found(name).shape
        if len(found) != 2:
            raise ImportFailed(f"it has the sizes {list(found)}, and is to be a matrix", where=self._place(name))
        return found[0], found[1]

    def count(self, name: Callable[[int], str]) -> int:
        """How many tensors there are whose names follow from 0, 1, 2, …"""
        return next(index for index in range(len(self._stored) + 1) if not self.has(name(index)))

    def take(self, name: str, shape: Sequence[int]) -> StoredTensor:
        """A tensor; ImportFailed if it is missing, of other sizes, or does not hold floats."""
        found, called = self._found(name), self._naming(name)
        if found.shape != tuple(shape):
            expected = f"the configuration asks for {list(shape)}"
            raise ImportFailed(f"it has the sizes {list(found.shape)}, and {expected}", where=self._place(called))
        if isinstance(found.format, DType) and not found.format.is_float:
            raise ImportFailed(f"it holds {found.format}, and weights are floats", where=self._place(called))
        self._asked.add(called)
        return found

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """A short tensor of f32 that belongs to a configuration; ImportFailed unless its numbers are above zero."""
        stored = self.take(name, (count,))
        found = stored.memory.reshape(-1)
        if stored.format != dtypes.f32 or not (np.isfinite(found).all() and (found > 0).all()):
            raise ImportFailed("it is to hold numbers above zero in f32", where=self._place(self._naming(name)))
        return tuple(found.tolist())

    def check_all_taken(self, ignored: Collection[str]) -> None:
        """ImportFailed if there is a tensor that nobody asked for and that no pattern in `ignored` matches whole."""
        patterns = [re.compile(each) for each in ignored]
        left = [name for name in self._stored if name not in self._asked]
        extra = [name for name in left if not any(pattern.fullmatch(name) for pattern in patterns)]
        if extra:
            more = f", nor for {len(extra) - 1} others" if len(extra) > 1 else ""
            raise ImportFailed(
                f"the recipe has no use for it{more}",
                where=self._place(extra[0]),
                hint="the model has parts that its configuration does not tell of, or that no recipe builds",
            )

    def _found(self, name: str) -> StoredTensor:
        called = self._naming(name)
        if called not in self._stored:
            hint = hint_for(called, self._stored)
            raise ImportFailed("the file has no such tensor", where=self._place(called), hint=hint)
        return self._stored[called]

    def _place(self, called: str) -> str:
        return f"{self._where}: tensor '{called}'"


def renamed(table: Mapping[str, str], prefix: str = "") -> Naming:
    """How a file calls tensors, by a table of modules and of whole names in which {} stands for the number of a layer;
    others have the same names there. `prefix` comes before all of them."""

    def naming(name: str) -> str:
        number = re.search(r"\.(\d+)(?=\.)", name)
        pattern = name if number is None else f"{name[: number.start()]}.{{}}{name[number.end() :]}"
        module, _, last = pattern.rpartition(".")
        found = table.get(pattern) or (f"{table[module]}.{last}" if module in table else pattern)
        return prefix + (found if number is None else found.replace("{}", number.group(1)))

    return naming


@dataclass
class _Contents:
    """What grows while a graph is made."""

    builder: Builder
    inputs: dict[str, Value] = field(default_factory=dict[str, Value])
    weights: dict[str, Value] = field(default_factory=dict[str, Value])
    names: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True)
class Network:
    """A place in a model whose graph is being made: `path` is the module, as its source calls it.

    Weights are named from there on, nodes carry it in their origins, and what a module gives is observable by it.
    """

    tensors: Tensors
    options: GraphOptions
    family: str
    path: str = ""
    _contents: _Contents = field(default_factory=lambda: _Contents(Builder()))

    @staticmethod
    def empty(tensors: Tensors, options: GraphOptions, family: str) -> Network:
        """A graph without nodes."""
        return Network(tensors, options, family, "", _Contents(Builder(limits=options.limits)))

    @property
    def b(self) -> Builder:
        """The builder."""
        return self._contents.builder

    def at(self, *names: str | int) -> Network:
        """A module inside this one."""
        return replace(self, path=".".join(filter(None, (self.path, *map(str, names)))))

    @contextmanager
    def op(self, name: str) -> Generator[Builder]:
        """The builder; nodes that are emitted inside come from this op of the module."""
        with self.b.origin(Origin(f"{self.family}.{name}", self.path or name, self.path)):
            yield self.b

    def named(self, value: Value) -> Value:
        """The value, observable by the path of this module from now on."""
        self._contents.names[self.path] = value
        return value

    def input(self, name: str, dtype: DType, *dims: Dim) -> Value:
        """The next input of the graph."""
        value = self.b.input(TensorType(dtype, dims))
        self._contents.inputs[name] = value
        return value

    def weight(self, name: str, *shape: int) -> Value:
        """A tensor of this module in the dtype that is computed in."""
        full = self.at(name).path
        known = self._contents.weights
        if full not in known:
            stored = self.tensors.take(full, shape)
            with self.op("weight") as b:
                self._contents.names[full] = kept = b.constant(np.ascontiguousarray(stored.memory))
                known[full] = converted(b, elements_of(b, kept, stored.format), self.options.dtype)
        return known[full]

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this module."""
        return self.tensors.has(self.at(name).path)

    def size(self, x: Value, axis: int = -1) -> int:
        """The size of an axis that does not differ from call to call."""
        found = self.b.dims(x)[axis]
        assert isinstance(found, int)
        return found

    def constant(self, array: Array) -> Value:
        """A table of numbers in the dtype that is computed in."""
        return self.b.constant(array.astype(self.options.dtype.numpy))

    def finish(self, name: str, outputs: Mapping[str, Value]) -> Graph:
        """The graph with these outputs."""
        done = self._contents
        return done.builder.finish(
            name,
            tuple(done.inputs.values()),
            tuple(outputs.values()),
            names={**done.names, **done.inputs, **outputs},
            input_names=tuple(done.inputs),
            output_names=tuple(outputs),
        )


def elements_of(b: Builder, kept: Value, kind: DType | BlockFormat) -> Value:
    """The elements of a tensor as it lies in its file; blocks stay packed until somebody reads them."""
    return kept if isinstance(kind, DType) else b.block_dequantize(kept, format=kind.name)
