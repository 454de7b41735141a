"""Matrix products: with weights that were laid out as panels beforehand, and with matrices as they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.ir import dtypes
from assay.ir.dims import Dim, product
from assay.ir.dtypes import FLOATS, NUMERIC, DType
from assay.ir.graph import Node
from assay.targets.base import limitation
from assay.targets.cpu import scalar
from assay.targets.cpu.registry import emits
from assay.targets.cpu.toolchain import template
from assay.targets.shared.planner import Planner
from assay.targets.shared.products import matrices
from assay.targets.shared.tensors import dtype_of, shape_of
from assay.targets.shared.views import View

SCRATCH = 1 << 21
"""Bytes that hold the `workspace` of c/gemm.h in every variant."""
_ROW_GRAIN, _COLUMN_GRAINS, _FEW = 192, (64, 48, 32, 16), 4
"""Rows and columns that one thread takes at a time, and how few parts are too few."""
_STRETCH = 256
"""Columns that one thread takes of a matrix that is read row by row for a single row of the left side."""


QUADS = 64
"""The numbers in a row of a panel of c/quads.h: four of each of its columns."""


_NO_WORDS: Mapping[str, object] = {}


def is_narrow(dtype: DType) -> bool:
    """Whether elements are widened before they are multiplied."""
    return dtype in (dtypes.f16, dtypes.bf16)


def arithmetic(dtype: DType) -> dict[str, str]:
    """The definitions that c/lanes.h needs for elements of `dtype`. Integers wrap, so their sign does not matter."""
    if is_narrow(dtype):
        return {"T": "uint16_t", "ACC": "float", dtype.name.upper(): ""}
    kind = scalar.ctype(dtype) if dtype.is_float else scalar.bits(dtype)
    return {"T": kind, "ACC": kind, "IN_PLACE": ""}


def sum_bytes(dtype: DType) -> int:
    """The size of the sums that are kept for elements of `dtype`."""
    return max(dtype.numpy.itemsize, 4) if dtype.is_float else dtype.numpy.itemsize


def panel_width(dtype: DType) -> int:
    """The columns of a panel, as c/lanes.h has it: 64 bytes of sums."""
    return 64 // sum_bytes(dtype)


def grains(rows: Dim, columns: Dim, usual: int = _COLUMN_GRAINS[0]) -> tuple[int, int]:
    """Rows and columns that one thread takes at a time: parts of about one size, some of them for each thread, but
    as many rows as may be, so that a panel is read once for all of them. `usual` columns if sizes are not known."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return _ROW_GRAIN, usual
    down = max(rows // _ROW_GRAIN, 1)
    if down < _FEW and columns < 512:
        down = max(min(rows // 48, _FEW), 1)
    even = down < _FEW and columns <= 1024
    across = min(_COLUMN_GRAINS, key=lambda grain: _half(columns, grain)) if even else _COLUMN_GRAINS[0]
    return max(-(-rows // down), 1), across


def _half(columns: int, grain: int) -> int:
    """The larger share if two threads take `columns` columns, `grain` at a time."""
    return -(-columns // (2 * grain)) * grain


_OTHER_WIDTH = "panels of another width have no kernel"


@limitation(_OTHER_WIDTH)
def other_width(node: Node) -> bool:
    """Whether the panels of a node are not as wide as kernels have them."""
    panels = node.inputs[1]
    return shape_of(panels)[-1] != panel_width(dtype_of(panels))


@emits("cpu.pack_panels", NUMERIC)
def pack_panels(p: Planner, node: Node) -> None:
    """Reads matrices as they lie, transposed ones too."""
    x = p.view(node.inputs[0])
    lead = View(x.storage, x.dtype, x.shape[:-2], x.strides[:-2], x.offset).reshaped((product(x.shape[:-2]),))
    if lead is None:
        x = p.dense(node.inputs[0])
        lead = View(x.storage, x.dtype, (product(x.shape[:-2]),), (x.shape[-2] * x.shape[-1],))
    matrices = View(x.storage, x.dtype, (*lead.shape, *x.shape[-2:]), (*lead.strides, *x.strides[-2:]), x.offset)
    pack(p, matrices, p.result(node.outputs[0]))


def pack(p: Planner, matrices: View, panels: View) -> None:
    """Lay `matrices`, of which the first axis counts, out as `panels`."""
    count, rows, columns = matrices.shape
    width, each = panels.shape[-1], panels.shape[-3]
    p.step(
        template("pack.h", T=scalar.bits(panels.dtype)),
        [matrices, panels],
        [rows, columns, width, each, *matrices.strides],
        rows=count * each,
        work=rows * width,
    )


@emits("cpu.matmul_panels", FLOATS, unless=(other_width,))
def matmul_panels(p: Planner, node: Node) -> None:
    """All rows of x at once, whatever its axes are."""
    x, panels, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    rows, depth = product(x.shape[:-1]), x.shape[-1]
    multiply(p, View(x.storage, x.dtype, (1, rows, depth), (0, depth, 1), x.offset), panels, out, out.shape[-1])


@limitation(_OTHER_WIDTH)
def other_byte_width(node: Node) -> bool:
    """As `other_width`, for panels of bytes: what they are multiplied with says how wide they are."""
    x, panels = node.inputs[:2]
    return shape_of(panels)[-1] != panel_width(dtype_of(x))


@emits("cpu.matmul_bytes", (dtypes.f32,), unless=(other_byte_width,))
def matmul_bytes(p: Planner, node: Node) -> None:
    """As `matmul_panels`; bytes are widened a block at a time."""
    x, panels, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    rows, depth = product(x.shape[:-1]), x.shape[-1]
    flat = View(x.storage, x.dtype, (1, rows, depth), (0, depth, 1), x.offset)
    multiply(p, flat, panels, out, out.shape[-1], BYTES="")


@limitation(_OTHER_WIDTH)
def other_quad_width(node: Node) -> bool:
    """As `other_width`, for panels of quads."""
    return shape_of(node.inputs[1])[-1] != QUADS


@emits("cpu.matmul_quads", (dtypes.u8,), unless=(other_quad_width,))
def matmul_quads(p: Planner, node: Node) -> None:
    """All rows of x at once, whatever its axes are."""
    x, panels, out = p.dense(node.inputs[0]), p.dense(node.inputs[1]), p.result(node.outputs[0])
    rows, depth, columns = product(x.shape[:-1]), x.shape[-1], out.shape[-1]
    row_grain, col_grain = grains(rows, columns)
    p.step(
        template("quads.h"),
        [x, panels, out],
        [columns, depth, panels.shape[1] * QUADS],
        rows=rows,
        cols=columns,
        row_grain=row_grain,
        col_grain=col_grain,
        work=depth // 2,
        takes_epilogue=True,
    )


def multiply(p: Planner, x: View, panels: View, out: View, columns: Dim, **words: str) -> None:
    """Rows of x, which has a batch axis before them, times a matrix that lies as panels; `words` for c/gemm.h."""
    next_panel = x.shape[-1] * panel_width(x.dtype)
    _multiply(p, x.split(1), panels, [0, 0, next_panel], out, columns, {"PACKED": "", **words})


def multiply_plain(p: Planner, x: View, matrix: View, out: View) -> None:
    """Rows of x, which has a batch axis before them, times a matrix as it lies."""
    _multiply(p, x.split(1), matrix, [0, 0, *matrix.strides], out, matrix.shape[-1])


def multiply_lines(p: Planner, x: View, lines: View, step: Dim, out: View, *, grain: int, **words: object) -> None:
    """Rows of x, which has a batch axis before them, times a matrix whose columns are lines, `step` apart. One thread
    takes `grain` of them at a time, if the rows are not known."""
    _multiply(p, x.split(1), lines, [0, 0, 1, step], out, lines.shape[0], words, grain)


def _multiply(
    p: Planner,
    x: View,
    right: View,
    strides: Sequence[Dim],
    out: View,
    columns: Dim,
    words: Mapping[str, object] = _NO_WORDS,
    grain: int = _COLUMN_GRAINS[0],
) -> None:
    """x has two batch axes; `strides` are those of the right side, `words` the definitions of c/gemm.h for it."""
    rows = product(x.shape[:-1])
    row_grain, col_grain = grains(rows, columns, grain)
    if rows == 1 and not words and strides[-1] == 1:
        col_grain = _STRETCH
    p.step(
        template("gemm.h", **words, **arithmetic(x.dtype)),
        [x, right, out],
        [x.shape[2], columns, x.shape[3], x.shape[1], *x.strides, *strides],
        rows=rows,
        cols=columns,
        row_grain=row_grain,
        col_grain=col_grain,
        work=2 * x.shape[3],
        scratch=SCRATCH,
        takes_epilogue=True,
    )


@emits("matmul", NUMERIC)
def matmul(p: Planner, node: Node) -> None:
    """Reads both operands as they lie."""
    x, y, out = matrices(p, node)
    _multiply(p, x, y, y.strides, out, y.shape[-1])
