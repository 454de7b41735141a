"""Nodes that move, choose and count: drawn with parameters at the edges of what the standard allows, and beyond."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.onnx_grow import FLOATS, Drawn, Growth, NodeMaker, drawn
from assay.ir.dtypes import Array

_ANY = ("float32", "int64", "bool", "int32", "float64", "uint8")
_NUMBERS = ("float32", "int64", "int32", "float64")


def reshape(g: Growth) -> Drawn:
    """Shapes with 0, −1, `allowzero`, and such that do not fit."""
    x = g.tensor(0, 4, _ANY)
    shape = list(g.shape(x))
    rows: tuple[list[int], ...] = (
        [-1],
        [0, -1],
        [*shape, 1],
        [1, -1],
        [0] * len(shape),
        [-1, *shape[1:]],
        shape[::-1],
        [2, -1],
        [],
        [0, 0, -1],
    )
    return drawn("Reshape", [x, g.given(g.pick(rows), "int64")], allowzero=g.maybe(1, 0.25))


def squeeze(g: Growth) -> Drawn:
    x = g.tensor(0, 4, _ANY)
    axes = g.maybe([g.axis(x)], 0.7) if g.rank(x) else None
    return drawn("Squeeze", [x] if axes is None else [x, g.given(axes, "int64")])


def unsqueeze(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _ANY)
    rank = g.rank(x)
    rows: tuple[list[int], ...] = ([0], [-1], [rank], [0, 1], [0, -1], [-rank - 1], [rank + 1], [0, 0], [1, 0], [])
    return drawn("Unsqueeze", [x, g.given(g.pick(rows), "int64")])


def flatten(g: Growth) -> Drawn:
    x = g.tensor(0, 4, _ANY)
    return drawn("Flatten", [x], axis=g.rng.randint(-g.rank(x), g.rank(x)))


def transpose(g: Growth) -> Drawn:
    x = g.tensor(0, 4, _ANY)
    return drawn("Transpose", [x], perm=g.maybe(g.rng.sample(range(g.rank(x)), g.rank(x)), 0.7) or None)


def expand(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _ANY)
    shape = [g.pick((size, 1, 3)) for size in g.shape(x)]
    return drawn("Expand", [x, g.given([*g.pick(([], [2], [1, 0], [3, 1])), *shape], "int64")])


def tile(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _ANY)
    return drawn("Tile", [x, g.given([g.pick((1, 2, 0, 3)) for _ in range(g.rank(x))], "int64")])


def concat(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _ANY)
    axis = g.axis(x)
    other = list(g.shape(x))
    other[axis] = g.size()
    y = g.data(g.array(other, g.kind(x)))
    return drawn("Concat", g.pick(([x, y], [x, x], [y, x, y], [x])), axis=axis)


def split(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _ANY)
    axis = g.axis(x)
    if g.chance(0.5):
        count = g.pick((1, 2, 3))
        return drawn("Split", [x], count, axis=axis, num_outputs=count)
    size = g.shape(x)[axis]
    parts = g.pick(([size], [0, size], [1, size - 1], [size, 1], [size // 2, size - size // 2]))
    return drawn("Split", [x, g.given(parts, "int64")], len(parts), axis=axis)


def slice_(g: Growth) -> Drawn:
    """Starts and ends around, at and far beyond the edges; steps of both signs, huge too."""
    x = g.tensor(1, 4, _ANY)
    axes = g.rng.sample(range(g.rank(x)), g.rng.randint(1, g.rank(x)))
    starts = [g.pick((0, 1, -1, -2, 2, 2**31, -(2**31), 2**63 - 1, -(2**63))) for _ in axes]
    ends = [g.pick((2, 5, -1, 0, -3, 2**31, -(2**31), 2**63 - 1, -(2**63))) for _ in axes]
    steps = [g.pick((1, 1, 2, -1, -2, 3, 2**31, -(2**31))) for _ in axes]
    shown = [axis - g.rank(x) if g.chance(0.4) else axis for axis in axes]
    kind = g.pick(("int64", "int64", "int32"))
    low, high = (-(2**31), 2**31 - 1) if kind == "int32" else (-(2**63), 2**63 - 1)
    rows = [[min(max(each, low), high) for each in row] for row in (starts, ends, shown, steps)]
    given = [g.given(row, kind) for row in rows]
    return drawn("Slice", [x, *given[: g.pick((3, 4, 4))]])


def gather(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _ANY)
    axis = g.axis(x)
    size = g.shape(x)[axis]
    places = g.rng.choice(([0], 0, [[-1, 0], [0, -1]], [size - 1], [-size], [size], []))
    return drawn("Gather", [x, g.given(places, g.pick(("int64", "int32")), fed=0.6)], axis=axis)


def gather_elements(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _ANY)
    axis = g.axis(x)
    shape = list(g.shape(x))
    shape[axis] = g.size()
    size = g.shape(x)[axis]
    places = g.numbers.integers(-size, size, shape) if size else np.zeros(shape, np.int64)
    return drawn("GatherElements", [x, g.data(places)], axis=axis)


def gather_nd(g: Growth) -> Drawn:
    x = g.tensor(1, 4, _ANY)
    shape = g.shape(x)
    batch = g.rng.randint(0, g.rank(x) - 1)
    depth = g.rng.randint(1, g.rank(x) - batch)
    lead = [*shape[:batch], *([g.size()] if g.chance(0.7) else [])]
    places = [_places(g, size, lead) for size in shape[batch : batch + depth]]
    return drawn("GatherND", [x, g.data(np.stack(places, -1))], batch_dims=batch)


def _places(g: Growth, size: int, shape: list[int]) -> Array:
    return g.numbers.integers(-size, size, shape) if size else np.zeros(shape, np.int64)


def scatter_elements(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _NUMBERS)
    axis, shape = g.axis(x), list(g.shape(x))
    reduction = g.pick((None, None, "add", "mul", "max", "min", "none"))
    size = shape[axis]
    shape[axis] = g.rng.choice((0, 1, 2)) if reduction not in (None, "none") else min(size, 1)
    updates = g.data(g.array(shape, g.kind(x)))
    return drawn("ScatterElements", [x, g.data(_places(g, size, shape)), updates], axis=axis, reduction=reduction)


def scatter_nd(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _NUMBERS)
    shape = g.shape(x)
    depth = g.rng.randint(1, g.rank(x))
    reduction = g.pick((None, "add", "mul", "max", "min"))
    count = g.size() if reduction else g.pick((0, 1))
    places = np.stack([_places(g, size, [count]) for size in shape[:depth]], -1)
    updates = g.data(g.array([count, *shape[depth:]], g.kind(x)))
    return drawn("ScatterND", [x, g.data(places), updates], reduction=reduction)


def pad(g: Growth) -> Drawn:
    """Every mode, negative pads, some axes."""
    x = g.tensor(1, 4, ("float32", "int64", "float64", "int32"))
    mode = g.pick(("constant", "constant", "reflect", "edge", "wrap"))
    some = g.maybe(g.rng.sample(range(g.rank(x)), g.rng.randint(1, g.rank(x))), 0.4)
    count = len(some) if some else g.rank(x)
    rows = (0, 1, 2, -1, 0) if mode == "constant" else (0, 1, 2, 0, -1)
    pads = g.given([g.pick(rows) for _ in range(2 * count)], "int64")
    fill = g.given(g.pick((0, 1, 3)), g.kind(x)) if g.chance(0.5) else None
    if some is None:
        return drawn("Pad", [x, pads, fill] if fill else [x, pads], mode=mode)
    axes = [axis - g.rank(x) if g.chance(0.3) else axis for axis in some]
    return drawn("Pad", [x, pads, fill, g.given(axes, "int64")], mode=mode)


def top_k(g: Growth) -> Drawn:
    """k within, at and beyond the axis, none and negative, fed as well."""
    x = g.tensor(1, 3, _NUMBERS)
    axis = g.axis(x)
    size = g.shape(x)[axis]
    k = g.pick((0, 1, size, size - 1, size + 1, -1, 1, 2))
    return drawn(
        "TopK", [x, g.given([k], "int64", fed=0.6)], 2, axis=axis, largest=g.maybe(0), sorted=g.maybe(1, 0.8) or 0
    )


def range_(g: Growth) -> Drawn:
    """Steps of both signs, none, and limits that no step reaches."""
    kind = g.pick(("float32", "int64", "float64", "int32"))
    edges = (0.0, 1.0, -1.0, 5.0, 2.5, np.inf, np.nan, -np.inf) if kind[0] == "f" else (0, 1, -1, 5, -7)
    weights = [4] * 5 + [1] * (len(edges) - 5)
    start, limit = (g.rng.choices(edges, weights)[0] for _ in range(2))
    step = g.pick((1, -1, 2, 0, 0.5 if kind[0] == "f" else 3))
    return drawn("Range", [g.given(each, kind, fed=0.6) for each in (start, limit, step)])


def one_hot(g: Growth) -> Drawn:
    x = g.tensor(0, 3, ("int64", "int32", "float32"))
    depth = g.given(g.pick((5, [3], 1, 0, 12)), g.pick(("int64", "int32", "float32")))
    values = g.given([g.pick((0, -1)), g.pick((1, 3))], g.pick(("float32", "int64")))
    return drawn("OneHot", [x, depth, values], axis=g.rng.randint(-g.rank(x) - 1, g.rank(x)))


def eye_like(g: Growth) -> Drawn:
    x = g.tensor(2, 2, ("float32", "int64", "int32"))
    dtype = g.maybe(g.pick((TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE)), 0.6)
    return drawn(
        "EyeLike", [x], k=g.maybe(g.near(g.shape(x)[1]) if g.chance(0.2) else g.rng.randint(-3, 3)), dtype=dtype
    )


def trilu(g: Growth) -> Drawn:
    x = g.tensor(2, 4, _ANY)
    k = g.maybe(g.given(g.pick((0, 1, -1, 3, -4, 100, -100)), "int64"))
    return drawn("Trilu", [x, k] if k else [x], upper=g.pick((0, 1, None)))


def cumulative(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _NUMBERS)
    axis = g.given(g.axis(x), g.pick(("int64", "int32")), fed=0.5)
    return drawn("CumSum", [x, axis], exclusive=g.pick((0, 1, None)), reverse=g.pick((0, 1, None)))


def reduction(g: Growth) -> Drawn:
    """Axes given, fed, empty or left out; sizes of 0."""
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    name = g.pick(names)
    x = g.tensor(0, 4, ("float32", "int64", "float64", "int32") if name in names[:5] else ("float32", "float64"))
    axes = g.rng.sample(range(g.rank(x)), g.rng.randint(0, g.rank(x)))
    shown = [axis - g.rank(x) if g.chance(0.4) else axis for axis in axes]
    inputs = [x, g.given(shown, "int64")] if g.chance(0.75) else [x]
    return drawn(f"Reduce{name}", inputs, keepdims=g.pick((0, 1, None)), noop_with_empty_axes=g.pick((0, 1, None)))


def arg(g: Growth) -> Drawn:
    x = g.tensor(1, 3, _NUMBERS)
    flags = {"keepdims": g.pick((0, 1, None)), "select_last_index": g.pick((0, 1, None))}
    return drawn(g.pick(("ArgMax", "ArgMin")), [x], axis=g.maybe(g.axis(x), 0.8), **flags)


def shape(g: Growth) -> Drawn:
    x = g.tensor(0, 4, _ANY)
    edges = (0, 1, -1, -2, 3, 9, -9)
    return drawn("Shape", [x], start=g.maybe(g.pick(edges)), end=g.maybe(g.pick(edges)))


def constant_of_shape(g: Growth) -> Drawn:
    value = g.pick(
        (
            None,
            helper.make_tensor("v", TensorProto.INT64, [1], [3]),
            helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5]),
        )
    )
    return drawn("ConstantOfShape", [g.given(g.pick(([2, 3], [], [0], [2, 0, 1], [1])), "int64", fed=0.5)], value=value)


def data_dependent(g: Growth) -> Drawn:
    """Results whose sizes depend on content."""
    x = g.tensor(1, 3, ("float32", "int64", "bool", "int32"))
    way = g.pick(("NonZero", "Compress", "Unique"))
    if way == "NonZero":
        return drawn("NonZero", [x])
    if way == "Unique":
        if g.kind(x) == "bool":
            raise NotPossible("Unique of bools")
        return drawn("Unique", [x], 4, axis=g.maybe(g.axis(x)), sorted=g.pick((0, 1, None)))
    axis: int | None = g.maybe(g.axis(x))
    size = int(np.prod(g.shape(x))) if axis is None else g.shape(x)[axis]
    chosen = g.array([max(0, size + g.pick((0, 0, -1)))], "bool")
    return drawn("Compress", [x, g.data(chosen)], axis=axis)


def reverse_sequence(g: Growth) -> Drawn:
    x = g.tensor(2, 4, _NUMBERS)
    batch = g.pick((0, 1))
    first, second = g.shape(x)[:2]
    rows, steps = (second, first) if batch else (first, second)
    lengths = g.numbers.integers(0, steps + 1, [rows])
    return drawn("ReverseSequence", [x, g.data(lengths)], batch_axis=batch, time_axis=1 - batch)


def block(g: Growth) -> Drawn:
    size = g.pick((1, 2))
    if g.chance(0.5):
        x = g.data(g.array([g.size(), size * size * g.width(), g.size(), g.size()]))
        return drawn("DepthToSpace", [x], blocksize=size, mode=g.pick(("DCR", "CRD", None)))
    return drawn(
        "SpaceToDepth", [g.data(g.array([g.size(), g.width(), size * g.size(), size * g.size()]))], blocksize=size
    )


def elementwise(g: Growth) -> Drawn:
    """One input, every dtype that the op has."""
    floats = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Floor", "Ceil", "Round", "Sign", "Erf")
    more = ("Reciprocal", "Softplus", "Softsign", "Sin", "Cos", "Atan", "Sinh", "Asinh", "IsNaN", "Identity", "Mish")
    name = g.pick(
        (*floats, *more, "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "ThresholdedRelu", "Celu", "IsInf")
    )
    x = g.tensor(
        0,
        4,
        ("float32",)
        if name
        in (
            "Elu",
            "Selu",
            "HardSigmoid",
            "HardSwish",
            "ThresholdedRelu",
            "Celu",
            "Mish",
            "Softsign",
            "Sinh",
            "Asinh",
            "Atan",
            "IsInf",
            "Softplus",
        )
        else ("float32", "float64", "float16"),
    )
    with_alpha = name in ("Elu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Celu")
    flags = (
        {"detect_negative": g.pick((0, 1, None)), "detect_positive": g.pick((0, 1, None))} if name == "IsInf" else {}
    )
    return drawn(name, [x], alpha=g.maybe(g.pick((0.1, 1.0, 2.0))) if with_alpha else None, **flags)


def binary(g: Growth) -> Drawn:
    """Two inputs that broadcast, empty ones and numbers too."""
    name = g.pick(
        ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Equal", "Less", "GreaterOrEqual", "PRelu", "Mean", "Sum")
    )
    x = g.tensor(0, 3, ("float32", "float64") if name in ("Div", "Pow", "PRelu", "Mean", "Sum") else _NUMBERS)
    other = [1 if g.chance(0.25) else size for size in g.shape(x)][g.rng.randint(0, 1) :]
    return drawn(name, [x, g.data(g.array(other, g.kind(x)))])


def integer_arithmetic(g: Growth) -> Drawn:
    name = g.pick(("Div", "Mod", "BitShift", "BitwiseAnd", "BitwiseXor", "Pow", "Mod"))
    kind = "uint8" if name == "BitShift" else g.pick(("int64", "int32"))
    x = g.data(g.array([g.size(), g.width()], kind))
    y = g.given(
        g.pick(([1], 2, [3]))
        if kind[0] == "u"
        else g.pick(([2], 3, [1]))
        if name == "Pow"
        else g.pick(([2], -3, [1], -1)),
        kind,
    )
    attrs = (
        {"direction": g.pick(("LEFT", "RIGHT"))}
        if name == "BitShift"
        else {"fmod": g.pick((0, 1))}
        if name == "Mod"
        else {}
    )
    return drawn(name, [x, y], **attrs)


def float_mod(g: Growth) -> Drawn:
    x = g.tensor(0, 3, ("float32", "float64"))
    return drawn("Mod", [x, g.given(g.pick((2.0, -1.5, [0.5])), g.kind(x))], fmod=1)


def clip(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _NUMBERS)
    low, high = (g.maybe(g.given(each, g.kind(x)), 0.7) for each in (g.pick((-1, 0, 3)), g.pick((1, 2, -2))))
    return drawn("Clip", [x, low, high] if high else [x, low] if low else [x])


def where(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _ANY)
    y = g.data(g.array(g.shape(x), g.kind(x)))
    return drawn("Where", [g.data(g.array(g.shape(x)[g.rng.randint(0, 1) :], "bool")), x, y])


def cast(g: Growth) -> Drawn:
    x = g.tensor(0, 3, _ANY)
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT64)
    small = (*kinds, TensorProto.INT32) if g.kind(x) not in FLOATS else kinds[:4]
    return drawn("Cast", [x], to=g.pick(small))


def split_to_sequence(g: Growth) -> Drawn:
    x = g.tensor(1, 3, ("float32", "int64"))
    axis = g.axis(x)
    size = g.shape(x)[axis]
    part = g.pick((None, 1, 2, [size], [1, size - 1]))
    inputs = [x] if part is None else [x, g.given(part, "int64")]
    return drawn("SplitToSequence", inputs, axis=axis, keepdims=g.pick((0, 1, None)))


def sequence(g: Growth) -> Drawn:
    """Ops on a sequence that is there."""
    there = [name for name, value in g.values.items() if isinstance(value, list) and value]
    if not there:
        return split_to_sequence(g)
    x = g.pick(there)
    length = len(g.values[x])
    rows = (
        lambda: drawn("SequenceAt", [x, g.given(g.pick((0, -1, length - 1)), "int64")]),
        lambda: drawn("SequenceLength", [x]),
        lambda: drawn("ConcatFromSequence", [x], axis=g.pick((0, -1)), new_axis=g.pick((0, 1, None))),
        lambda: drawn("SequenceErase", [x, g.given(g.pick((0, -1)), "int64")] if g.chance(0.7) else [x]),
    )
    return g.pick(rows)()


SHAPES: dict[NodeMaker, float] = {
    **dict.fromkeys((reshape, squeeze, unsqueeze, transpose, expand, concat, split, gather, reduction, binary), 1.5),
    **dict.fromkeys((slice_, pad, top_k, range_, elementwise, scatter_elements, scatter_nd, gather_nd), 2.0),
    **dict.fromkeys((flatten, tile, gather_elements, one_hot, eye_like, trilu, cumulative, arg, shape), 1.0),
    **dict.fromkeys((constant_of_shape, data_dependent, reverse_sequence, block, integer_arithmetic, float_mod), 0.8),
    **dict.fromkeys((clip, where, cast, split_to_sequence, sequence), 0.8),
}
"""How often each is drawn."""
