"""Random ONNX models that grow node by node; every value is computed on the way, so that nodes fit what there is.

Three streams of random numbers keep apart what a model is (its structure), how large its inputs are and what they hold:
the same structure grown again with other sizes gives another set of feeds for one and the same model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from assay.evidence.fuzz.drawing import NotPossible
from assay.ir.dtypes import Array

OPSETS = (18, 20, 21, 22, 23)
LARGEST = 4000
"""Values of more elements are not used any further."""

FLOATS, INTEGERS = ("float32", "float64", "float16"), ("int64", "int32", "int8", "uint8")


@dataclass(frozen=True)
class Made:
    """One node: an absent input is the empty name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]

    def proto(self) -> onnx.NodeProto:
        """The node as ONNX has it."""
        return helper.make_node(self.op, self.inputs, self.outputs, **self.attrs)


NodeMaker: TypeAlias = Callable[["Growth"], "Drawn"]
"""Draws a node."""


@dataclass(frozen=True)
class Drawn:
    """A node before its results have names."""

    op: str
    inputs: Sequence[str | None]
    results: int = 1
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])


def drawn(op: str, inputs: Sequence[str | None], results: Any = 1, **attrs: Any) -> Drawn:
    """A node with these attributes; those that are None are left out."""
    return Drawn(op, inputs, results, {name: value for name, value in attrs.items() if value is not None})


class Growth:
    """A model that grows. `fed` and `fixed` hold its inputs and initialisers, `values` all that is known."""

    def __init__(self, seed: Sequence[int], variant: int = 0) -> None:
        text = ".".join(map(str, seed))
        self.rng = random.Random(text)
        self.sizes = random.Random(f"{text}.{variant}")
        self.variant = variant
        self.numbers = np.random.default_rng([*seed, variant])
        self.fixed_numbers = np.random.default_rng(list(seed))
        self.opset: int = self.rng.choice(OPSETS)
        self.fed: dict[str, Array] = {}
        self.fixed: dict[str, Array] = {}
        self.values: dict[str, Any] = {}
        self.nodes: list[Made] = []
        self.complete = True
        self._count = 0

    # --- drawing

    def chance(self, share: float) -> bool:
        """True in that share of cases."""
        return self.rng.random() < share

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options; NotPossible if there are none."""
        if not options:
            raise NotPossible("nothing fits")
        return self.rng.choice(options)

    def maybe(self, value: Any, share: float = 0.5) -> Any:
        """The value, or None."""
        return value if self.chance(share) else None

    def width(self) -> int:
        """A size that is part of the structure."""
        return self.rng.choice((1, 2, 3, 4))

    def size(self) -> int:
        """A size that differs from feed to feed; now and then 0."""
        ordinary, edges = (1, 2, 3, 4, 5, 7), (0, 0, 1, 1, 6)
        return self.sizes.choice(edges if self.variant == 2 or self.sizes.random() < 0.04 else ordinary)

    def array(
        self, shape: Sequence[int], dtype: str = "float32", *, fixed: bool = False, special: bool = False
    ) -> Array:
        """Random content: small whole numbers, or floats that now and then hold NaN and infinities if `special`."""
        rng = self.fixed_numbers if fixed else self.numbers
        if dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype in INTEGERS:
            return np.asarray(rng.integers(0 if dtype[0] == "u" else -9, 10, shape)).astype(dtype)
        array = np.asarray(rng.normal(size=shape))
        if rng.random() < 0.3:
            array = np.round(array * 2)
        if special and rng.random() < 0.08:
            array = np.where(rng.random(shape) < 0.2, rng.choice([np.nan, np.inf, -np.inf, -0.0], shape), array)
        return np.asarray(array, dtype)

    def tensor(self, low: int = 0, high: int = 4, dtypes: Sequence[str] = ("float32",), *, special: bool = True) -> str:
        """A value of a rank within bounds and one of the dtypes: one that is there, or a new input.

        Unless `special`, all its floats are finite.
        """
        fitting = [
            name
            for name, value in self.values.items()
            if isinstance(value, np.ndarray) and low <= cast(Array, value).ndim <= high and self.kind(name) in dtypes
            if special or is_finite(cast(Array, value))
        ]
        reuse = self.chance(0.65)
        if fitting and reuse:
            return self.pick(fitting[-4:])
        rank, dtype = self.rng.randint(low, high), self.rng.choices(dtypes, [4, *[1] * (len(dtypes) - 1)])[0]
        return self.data(self.array([self.size() for _ in range(rank)], dtype, special=special))

    def data(self, array: Array) -> str:
        """A new input that is fed, of content that differs from feed to feed."""
        name = self._name("x")
        self.fed[name] = self.values[name] = array
        return name

    def given(self, array: Any, dtype: str | None = None, *, fed: float = 0.3) -> str:
        """A parameter such as axes or weights: an initialiser, in a share of cases fed."""
        content = np.asarray(array, dtype)
        name = self._name("c")
        (self.fed if self.chance(fed) else self.fixed)[name] = self.values[name] = content
        return name

    def weight(self, shape: Sequence[int], dtype: str = "float32") -> str:
        """A parameter of random content."""
        return self.given(self.array(shape, dtype, fixed=True))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.values[name].shape

    def rank(self, name: str) -> int:
        """The rank of a value."""
        return len(self.shape(name))

    def kind(self, name: str) -> str:
        """The dtype of a value."""
        return str(self.values[name].dtype)

    def axis(self, name: str) -> int:
        """An axis of a value, counted from either end; NotPossible for a number."""
        rank = self.rank(name)
        if not rank:
            raise NotPossible("a number has no axes")
        return self.rng.randint(-rank, rank - 1)

    def near(self, size: int) -> int:
        """A number at the edges of a size: none, one, all, one more, before the beginning, far beyond."""
        return self.pick((0, 1, 2, size, size - 1, size + 1, -1, -size, -size - 1, 2**31, -(2**31)))

    # --- growing

    def add(self, node: Drawn) -> None:
        """Add a node; if nobody can compute it, it is the last one."""
        outputs = tuple(self._name("y") for _ in range(node.results))
        made = Made(node.op, tuple(name or "" for name in node.inputs), outputs, node.attrs)
        found = computed(made, self.values, self.opset)
        self.nodes.append(made)
        if found is None:
            self.complete = False
            return
        for name, value in zip(outputs, found, strict=True):
            if value is not None and getattr(value, "size", 0) <= LARGEST:
                self.values[name] = value

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


def is_finite(array: Array) -> bool:
    """Whether an array holds neither NaN nor infinities."""
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def computed(made: Made, values: Mapping[str, Any], opset: int) -> Sequence[Any] | None:
    """What the reference evaluator or else onnxruntime gives for one node; None if both fail."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: values[name] for name in reads(made, values)}
    model = built([made], feeds, {}, {}, opset, made.outputs)
    try:
        with np.errstate(all="ignore"):
            found = cast(Any, ReferenceEvaluator(model)).run(None, feeds)
    except Exception:
        return _by_onnxruntime(model, feeds)
    return [np.asarray(each) if np.isscalar(each) else each for each in found]


def _by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Sequence[Any] | None:
    from assay.evidence.peers import open_onnxruntime, run_onnxruntime

    try:
        results = run_onnxruntime(open_onnxruntime(model.SerializeToString(), optimized=False), feeds)
    except Exception:
        return None
    return [results[info.name] for info in model.graph.output]


def reads(made: Made, known: Container[str]) -> list[str]:
    """The values that a node reads, those that its bodies take from around it included."""
    inside = [
        name
        for attr in made.attrs.values()
        if isinstance(attr, onnx.GraphProto)
        for node in attr.node
        for name in node.input
        if name in known
    ]
    return list(dict.fromkeys([*(name for name in made.inputs if name), *inside]))


# --- models

Declared: TypeAlias = Mapping[str, Sequence[int | str | None] | None]
"""What a model says of the dims of an input: numbers, names, nothing; None for nothing at all."""


def built(
    nodes: Sequence[Made],
    fed: Mapping[str, Any],
    fixed: Mapping[str, Array],
    declared: Declared,
    opset: int,
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """The model of these nodes."""
    inputs = [_info(name, value, declared.get(name, ())) for name, value in fed.items()]
    graph = helper.make_graph(
        [node.proto() for node in nodes],
        "fuzz",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in fixed.items()],
    )
    return _typed(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))


def _info(name: str, value: Any, dims: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        first = cast("list[Any]", value)[0] if value else np.zeros(0, np.float32)
        return helper.make_tensor_sequence_value_info(name, _element(first), None)
    shown = value.shape if dims == () else dims
    return helper.make_tensor_value_info(name, _element(value), shown)


def _element(array: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its outputs, as far as they can be inferred; shapes are left open."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception:
        inferred = model
    known = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output)}
    for info in model.graph.output:
        found = known.get(info.name)
        if found is not None and found.type.WhichOneof("value"):
            info.type.CopyFrom(found.type)
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
    return model
