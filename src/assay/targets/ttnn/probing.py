"""What the library says of every row of the op table, in every dtype and layout: asked, not assumed.

Cases come from the ops' own samples, and from `MORE` for rows that these do not reach. A rule of the table that leaves
something out has a case in `RULES`, which the library must refuse: if it does not any more, the rule is out of date.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from assay.errors import AssayError, CompileFailed
from assay.ir.dtypes import DType, bf16, boolean, f32, i64
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.ops import OPS
from assay.ops.builder import Builder
from assay.ops.registry import Sample
from assay.targets.ttnn.cards import Card
from assay.targets.ttnn.library import Library, RefusedCall, TensorSpec
from assay.targets.ttnn.lowering import accepted, planned
from assay.targets.ttnn.plan import ROWS, TILE
from assay.targets.ttnn.rows.collectives import COLLECTIVES
from assay.targets.ttnn.table import TABLE, OpRow, OpTable

DTYPES: tuple[DType, ...] = (f32, bf16, boolean, i64)
"""Those of a model that the card holds."""
FORMATS: tuple[tuple[str, str], ...] = (
    ("bfloat16", TILE),
    ("bfloat16", ROWS),
    ("float32", TILE),
    ("float32", ROWS),
    ("bfloat8_b", TILE),
    ("bfloat4_b", TILE),
)
"""What the library is asked in."""


def _floats(*shapes: tuple[int, ...] | None, **attrs: Any) -> Sample:
    return Sample(tuple(None if shape is None else np.ones(shape, np.float32) for shape in shapes), attrs)


def _whole(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.int64)


def _image(*new: int, mode: str, **attrs: Any) -> Sample:
    """An image resized."""
    return Sample((np.ones((2, 48, 7, 9), np.float32), np.array(new)), {"axes": (2, 3), "mode": mode, **attrs}, (1,))


def _written(shape: tuple[int, ...], *rows: int) -> Sample:
    """Rows along the first axis that are written at places which are known."""
    new = np.full((len(rows), *shape[1:]), 2, np.float32)
    return Sample((np.ones(shape, np.float32), np.array(rows)[:, None], new), {"reduction": "none"}, (1,))


_TABLE = np.ones((40, 6, 64), np.float32)

_PLAIN = {"strides": (1, 1), "dilations": (1, 1), "output_padding": (0, 0)}
_DOUBLED = {"strides": (2, 2), "dilations": (1, 1), "output_padding": (0, 0)}

MORE: Mapping[str, Sequence[Sample]] = {
    "split": [_floats((2, 5), sizes=(2, 3), axis=1), _floats((64, 96), sizes=(32, 64), axis=-1)],
    "sdpa": [
        _floats((2, 4, 197, 64), (2, 4, 197, 64), (2, 4, 197, 64)),
        _floats((1, 8, 64, 64), (1, 2, 64, 64), (1, 2, 64, 64), causal=True),
        _floats((2, 4, 7, 40), (2, 4, 1500, 40), (2, 4, 1500, 40), (2, 1, 1, 1500), scale=0.5),
        _floats((2, 4, 1, 64), (2, 4, 96, 64), (2, 4, 96, 64), (2, 1, 1, 96)),
        _floats((1, 8, 1, 40), (1, 2, 64, 40), (1, 2, 64, 40)),
    ],
    "matmul": [
        _floats((2, 1, 33, 65), (1, 6, 65, 7)),
        _floats((64, 64), (2, 6, 64, 64)),
        _floats((1, 1, 384), (384, 51865)),
        _floats((2, 2, 2, 2, 8, 8), (8, 8)),
    ],
    "conv": [
        _floats((1, 3, 224, 224), (64, 3, 7, 7), (64,), strides=(2, 2), pads=(3,) * 4, dilations=(1, 1)),
        _floats((2, 64, 56, 56), (128, 64, 1, 1), strides=(2, 2), pads=(0,) * 4, dilations=(1, 1)),
        _floats((1, 96, 28, 28), (96, 1, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), groups=96),
        _floats((1, 80, 3000), (384, 80, 3), (384,), strides=(1,), pads=(1, 1), dilations=(1,)),
        _floats((1, 3, 640, 640), (32, 3, 3, 3), strides=(1, 1), pads=(1,) * 4, dilations=(1, 1)),
    ],
    "conv_transpose": [
        _floats((1, 128, 32, 32), (128, 64, 4, 4), (64,), pads=(1,) * 4, **_DOUBLED),
        _floats((2, 64, 16, 16), (64, 64, 2, 2), (64,), pads=(0,) * 4, **_DOUBLED),
        _floats((2, 512, 1, 1), (512, 512, 3, 3), pads=(1,) * 4, **_PLAIN),
        _floats((2, 64, 1, 1), (64, 64, 3, 3), pads=(1,) * 4, **_PLAIN),
        _floats((2, 64, 1, 1), (64, 64, 1, 1), pads=(0,) * 4, **_DOUBLED),
        _floats((2, 128, 4, 4), (128, 64, 3, 3), pads=(1,) * 4, **_PLAIN),
    ],
    "group_norm": [
        _floats((1, 320, 64, 64), (320,), (320,), groups=32),
        _floats((2, 64, 16, 16), groups=32),
        _floats((1, 32, 8, 8), (32,), None, groups=1),
    ],
    "instance_norm": [_floats((1, 64, 32, 32), (64,), (64,))],
    "max_pool": [_floats((1, 64, 112, 112), kernel=(3, 3), strides=(2, 2), pads=(1,) * 4, dilations=(1, 1))],
    "average_pool": [_floats((2, 512, 7, 7), kernel=(7, 7), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1))],
    "layer_norm": [_floats((1, 197, 192), (192,), (192,)), _floats((2, 7, 5120), (5120,), (5120,))],
    "softmax": [_floats((1, 6, 1500, 1500), axis=-1), _floats((2, 3, 4, 5, 6), axis=1)],
    "transpose": [_floats((1, 2, 3, 32, 32), perm=(0, 4, 1, 3, 2)), _floats((2, 197, 12, 64), perm=(0, 2, 1, 3))],
    "add": [_floats((2, 2, 2, 2, 33, 7), (2, 1, 2, 1, 7)), _floats((64, 1), (1, 64)), _floats((197, 768), (768,))],
    "gather": [
        Sample((np.ones((30522, 128), np.float32), _whole(2, 7)), {"axis": 0}),
        Sample((np.ones((2, 32, 128), np.float32), np.array(-1)), {"axis": 1}, (1,)),
        Sample((_whole(2, 512), _whole(3)), {"axis": 1}),
        Sample((_whole(64), _whole(1, 17)), {"axis": 0}),
    ],
    "gather_nd": [Sample((_TABLE, _whole(2, 5, 2)), {"batch_dims": 0}), Sample((_whole(4, 9), _whole(5, 2)), {})],
    "gather_elements": [Sample((_TABLE, _whole(40, 6, 3)), {"axis": 2}), Sample((_whole(9), _whole(5)), {"axis": 0})],
    "scatter_nd": [
        Sample((_TABLE, _whole(3, 1), np.ones((3, 6, 64), np.float32)), {"reduction": reduction})
        for reduction in ("none", "add")
    ]
    + [_written((40, 6, 64), *rows) for rows in ((3, 4, 39), (0,), (-1, 5, 5), (7, 6), tuple(range(1, 40, 2)))]
    + [_written((1, 3, 800, 1088), 0)],
    "scatter_elements": [Sample((_TABLE, _whole(40, 1, 64), np.ones((40, 1, 64), np.float32)), {"axis": 1})],
    "topk": [
        Sample((np.ones((1, 1000), np.float32), np.array(5)), {"axis": -1}, (1,)),
        Sample((np.ones((2, 1 << 16), np.float32), np.array(5)), {"axis": -1}, (1,)),
        Sample((np.ones((2, 65537), np.float32), np.array(5)), {"axis": -1}, (1,)),
    ],
    "sort": [_floats((3, 84), axis=-1), _floats((2, 1 << 15), axis=-1)],
    "div": [Sample((_whole(2, 9), np.array(4)), {}, (1,))],
    "where": [
        Sample((np.ones((2, 9), bool), _whole(2, 9), np.array(7)), {}, (2,)),
        Sample((np.ones((2, 9), bool), np.array(7), np.array(-1)), {}, (1, 2)),
        Sample((np.ones((2, 9), bool), np.float32(7), np.float32(-1)), {}, (1, 2)),
    ],
    "clip": [Sample((_whole(2, 9), np.array(-3), np.array(5)), {}, (1, 2))],
    "lt": [Sample((_whole(2, 9), np.array(5)), {}, (1,)), Sample((_whole(2, 1), _whole(9)), {})],
    "resize": [
        _image(14, 18, mode="nearest", transform="asymmetric", rounding="floor"),
        _image(21, 18, mode="nearest"),
        _image(14, 18, mode="linear"),
        _image(14, 18, mode="linear", transform="align_corners"),
        _image(5, 11, mode="cubic"),
    ],
}
"""Arguments as models have them, for rows whose samples are small or do not fit."""


def cases(op: str) -> Iterator[tuple[str, Graph]]:
    """Graphs of one node of this op, each with what it is; only what can be built at all."""
    definition = OPS[op]
    for dtype in DTYPES:
        if dtype not in definition.main_dtypes:
            continue
        rng = np.random.default_rng(zlib.crc32(f"{op} {dtype}".encode()))
        for sample in (*definition.samples(rng, dtype), *(MORE.get(op, ()) if dtype is f32 else ())):
            shapes = [None if each is None else list(np.shape(each)) for each in sample.inputs]
            told = f"{op} {dtype} {shapes} {dict(sample.attrs)}"
            graph = _single(op, sample)
            if graph is not None:
                yield told, graph


def _single(op: str, sample: Sample) -> Graph | None:
    """A graph of one node; inputs of which the table wants the content are constants."""
    b = Builder()
    known = {*sample.fixed, *TABLE.rows[op].constants}
    values: list[Any] = []
    for place, each in enumerate(sample.inputs):
        made = None if each is None else b.constant(np.asarray(each))
        values.append(made if made is None or place in known else b.input(made.type))
    try:
        results = b.emit(op, *values, **sample.attrs)
    except (AssayError, TypeError, ValueError):
        return None
    inputs = [value for value in values if value is not None and value not in b.constants]
    return b.finish(op, inputs, results)


def taken(graph: Graph) -> bool:
    """Whether the table takes every node of a graph."""
    return all(_LIMITATIONS.support(node).ok for node in graph.nodes)


_LIMITATIONS = TABLE.limitations()


class LibraryRule(NamedTuple):
    """Something that the table leaves out, as a call that the library refuses: tensors are (shape, dtype, layout)."""

    sentence: str
    call: str
    tensors: Sequence[tuple[tuple[int, ...], str, str]]
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = {}


_Q = ((1, 2, 64, 32), "bfloat16", TILE)
RULES: Sequence[LibraryRule] = (
    LibraryRule("integers have no products", "matmul", [((64, 64), "int32", TILE)] * 2),
    LibraryRule("integers and floats do not mix", "add", [((64, 64), "int32", TILE), ((64, 64), "bfloat16", TILE)]),
    LibraryRule("integers have no exponential function", "exp", [((64, 64), "int32", TILE)]),
    LibraryRule(
        "products do not broadcast two batches",
        "matmul",
        [((2, 1, 8, 8), "bfloat16", TILE), ((1, 6, 8, 8), "bfloat16", TILE)],
    ),
    LibraryRule("positions are unsigned", "embedding", [((1, 32), "int32", ROWS), ((100, 64), "bfloat16", ROWS)]),
    LibraryRule(
        "tables of positions are bfloat16", "embedding", [((1, 32), "uint32", ROWS), ((100, 64), "float32", ROWS)]
    ),
    LibraryRule(
        "attention has four axes", "transformer.scaled_dot_product_attention", [((2, 64, 32), "bfloat16", TILE)] * 3
    ),
    LibraryRule(
        "attention wants tiles", "transformer.scaled_dot_product_attention", [((1, 2, 64, 32), "bfloat16", ROWS)] * 3
    ),
    LibraryRule(
        "heads are whole tiles",
        "transformer.scaled_dot_product_attention",
        [((1, 2, 64, 40), "bfloat16", TILE)] * 3,
        options={"is_causal": False},
    ),
    LibraryRule(
        "causal attention has as many keys as queries",
        "transformer.scaled_dot_product_attention",
        [((1, 2, 32, 32), "bfloat16", TILE), _Q, _Q],
        options={"is_causal": True},
    ),
    LibraryRule(
        "a mask is for all queries",
        "transformer.scaled_dot_product_attention",
        [_Q, _Q, _Q],
        options={"is_causal": False, "attn_mask": ((1, 1, 1, 64), "bfloat16", TILE)},
    ),
    LibraryRule(
        "heads that are joined are whole tiles", "transformer.concatenate_heads", [((1, 4, 64, 80), "bfloat16", TILE)]
    ),
    LibraryRule(
        "heads that are split are whole tiles",
        "transformer.split_query_key_value_and_split_heads",
        [((1, 64, 3 * 4 * 80), "bfloat16", TILE)],
        options={"num_heads": 4, "transpose_key": False},
    ),
    LibraryRule(
        "heads that are turned are of 32, or of multiples of 64",
        "experimental.rotary_embedding_hf",
        [((1, 4, 64, 96), "bfloat16", TILE), *[((1, 1, 64, 96), "bfloat16", TILE)] * 2],
        options={"is_decode_mode": False},
    ),
    LibraryRule(
        "rows for a cache lie on a core each",
        "experimental.paged_update_cache",
        [_Q, ((1, 1, 2, 32), "bfloat16", TILE)],
        options={"update_idxs": [3]},
    ),
    LibraryRule("in tiles nothing is put in front", "pad", [_Q], [[(0, 0), (0, 0), (2, 0), (0, 0)]], {"value": 0.0}),
    LibraryRule("block formats are in tiles alone", "to_layout", [((64, 64), "bfloat8_b", ROWS)], [{"name": TILE}]),
)


def refused(rule: LibraryRule, library: Library) -> str:
    """What the library says against the call of a rule; empty if it takes it."""
    tensors: list[Any] = [*rule.tensors, *(each for each in rule.options.values() if type(each) is tuple)]
    numbers = iter(range(len(rule.tensors) + 1, len(tensors) + 1))
    options = {k: {"value": next(numbers)} if type(v) is tuple else v for k, v in rule.options.items()}
    args = [*({"value": at + 1} for at in range(len(rule.tensors))), *rule.arguments]
    step = {"op": rule.call, "args": args, "kwargs": options, "results": [len(tensors) + 1], "frees": []}
    found = library.check([step], [TensorSpec(at + 1, *tensor) for at, tensor in enumerate(tensors)])
    return found.reason if isinstance(found, RefusedCall) else ""


def answers(op: str, library: Library) -> dict[tuple[str, str], str]:
    """What the library says of a row's first case that it takes, in each format: empty is yes, else its words."""
    graph = next(graph for _, graph in cases(op) if taken(graph) and _works(graph, library))
    return _in_each_format(graph, TABLE.rows[op], library)


def exchange_axes(card: Card) -> list[int]:
    """The axes of a card's mesh along which chips exchange something."""
    return [axis for axis, chips in enumerate(card.mesh) if chips > 1]


def exchanges(op: str, axis: int, library: Library) -> dict[tuple[str, str], str]:
    """What the library says, in each format, if chips along an axis of the mesh exchange something."""
    b = Builder()
    x = b.input(TensorType(f32, (3, 5, 64)))
    graph = b.finish(op, [x], b.emit(op, x, chips=library.mock.mesh[axis], axis=axis))
    return _in_each_format(graph, COLLECTIVES.rows[op], library)


def _in_each_format(graph: Graph, row: OpRow, library: Library) -> dict[tuple[str, str], str]:
    (node,) = graph.nodes
    found: dict[tuple[str, str], str] = {}
    for dtype, layout in FORMATS:
        table = OpTable({node.op: replace(row, layout=layout)})
        try:
            accepted(planned(graph, floats=dtype, table=table), library)
            found[dtype, layout] = ""
        except CompileFailed as error:
            found[dtype, layout] = error.message
    return found


def _works(graph: Graph, library: Library) -> bool:
    try:
        accepted(planned(graph), library)
    except CompileFailed:
        return False
    return True
