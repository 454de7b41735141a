"""Matrix products, of matrices as they lie.

Where the device is best at tiles, or at blocks, these. Else two ways, by how the right side lies. Lanes along the
columns: each keeps the sums of some rows and columns, and the left side is loaded once for the subgroup and handed from
lane to lane. Lanes along the depth, where that is how the right side lies in memory: each keeps a part of the same
sums, which are joined at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from assay.ir import dims
from assay.ir.dims import Dim
from assay.ir.dtypes import f32, i32
from assay.ir.graph import Node
from assay.targets.shared.planner import Planner
from assay.targets.shared.products import matrices
from assay.targets.shared.views import View
from assay.targets.vulkan import scalar
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.blocks import INVOCATIONS, SIDE, Side, add_blocks, has_blocks, is_large, own_lines
from assay.targets.vulkan.kernels.elements import NUMBERS
from assay.targets.vulkan.kernels.handing import along
from assay.targets.vulkan.kernels.tiles import HEIGHT, QUAD, add_products, in_fours, rows_of_lane
from assay.targets.vulkan.planning import profile_of
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import ResultElement, Shader, TensorOperand
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template

_COLUMNS = 4
"""Columns of a lane at most, where lanes lie along the columns."""
_DEEP = 4
"""Rows and columns of a workgroup, where lanes lie along the depth."""
_FEW = 4
"""So few columns are not worth a lane each."""
_MANY = 32
"""For so many rows it is worth its time to put the right side into another order first."""


@emits("matmul", NUMBERS)
@emits("vulkan.matmul_bytes", (f32, i32))
def matmul(p: Planner, node: Node) -> None:
    """Reads both operands as they lie."""
    multiply(p, *matrices(p, node))


def takes_tiles(p: Planner, x: View, y: View) -> bool:
    """Whether products of such tensors are best made by tiles on this device."""
    return x.dtype is f32 and y.dtype is f32 and profile_of(p).tiles


def multiply(p: Planner, x: View, y: View, out: View, bias: View | None = None) -> None:
    """Plan a product of matrices with two batch axes; elements of the right one may be bytes. Tiles take a bias, which
    has an element for each row."""
    if takes_tiles(p, x, y):
        _multiply_tiles(p, x, y, out, bias)
        return
    assert bias is None
    if x.dtype.is_float and x.dtype is y.dtype and has_blocks(profile_of(p)) and is_large(x.shape[2], y.shape[3]):
        _multiply_blocks(p, x, y, out)
        return
    rows, columns, depth = x.shape[2], y.shape[3], x.shape[3]
    batch = dims.product(x.shape[:2])
    few = isinstance(columns, int) and columns < _FEW
    deep = y.strides[2] == 1 and (few or y.strides[3] != 1) and not (isinstance(depth, int) and depth < 16)
    if deep and not few and isinstance(rows, int) and rows >= _MANY:
        y, deep = p.copied(y), False
    height, kinds = height_of(rows, _DEEP if deep else 8), [x.dtype, y.dtype, out.dtype]
    if deep:
        kernel = template(write_deep, kinds, 12, by_group=True, height=height)
    else:
        each = _lane_columns(columns)
        kernel = template(write_broad, kinds, 12, by_group=True, lane_columns=each, height=height, each=each)
    numbers = [rows, columns, depth, x.shape[1], *x.strides, *y.strides]
    p.step(kernel, [x, y, out], numbers, rows=batch * rows, cols=columns, col_grain=_DEEP, takes_epilogue=True)


def _multiply_tiles(p: Planner, x: View, y: View, out: View, bias: View | None) -> None:
    """Both sides are read four elements at a time where these lie side by side, the right one along either axis."""
    rows, columns, depth = x.shape[2], y.shape[3], x.shape[3]
    left = x.strides[3] == 1 and in_fours(depth, x.offset, *x.strides[:3])
    right = "single"
    if y.strides[3] == 1 and in_fours(columns, y.offset, *y.strides[:3]):
        right = "columns"
    elif y.strides[2] == 1 and in_fours(depth, y.offset, *y.strides[:2], y.strides[3]):
        right = "depth"
    operands = [view for view in (x, y, bias, out) if view is not None]
    kernel = template(
        write_tiles,
        [view.dtype for view in operands],
        12,
        by_group=True,
        lane_columns=QUAD,
        height=height_of(rows, HEIGHT),
        texels=(QUAD if left else 1, 1 if right == "single" else QUAD, *[1] * (bias is not None)),
        left=left,
        right=right,
        whole=in_fours(depth),
        biased=bias is not None,
    )
    numbers = [rows, columns, depth, x.shape[1], *x.strides, *y.strides]
    p.step(kernel, operands, numbers, rows=dims.product(x.shape[:2]) * rows, cols=columns, takes_epilogue=True)


def _multiply_blocks(p: Planner, x: View, y: View, out: View) -> None:
    rows, columns, depth = x.shape[2], y.shape[3], x.shape[3]
    kernel = template(
        write_blocks,
        [x.dtype, y.dtype, out.dtype],
        12,
        by_group=True,
        height=SIDE,
        invocations=INVOCATIONS,
        left=x.strides[2] == 1,
        right=y.strides[3] == 1,
    )
    numbers = [rows, columns, depth, x.shape[1], *x.strides, *y.strides]
    batch = dims.product(x.shape[:2])
    p.step(kernel, [x, y, out], numbers, rows=batch * rows, cols=columns, col_grain=SIDE, takes_epilogue=True)


def height_of(rows: Dim, most: int) -> int:
    """Rows that a workgroup takes: no more than there are, as far as that is known."""
    if not isinstance(rows, int):
        return most
    return next(height for height in (1, 2, 4, 8, 16) if height >= min(rows, most))


def _lane_columns(columns: Dim) -> int:
    """Columns that a lane takes: few if there are few."""
    return next((each for each in (1, 2) if isinstance(columns, int) and columns <= 8 * each), _COLUMNS)


class _Grid:
    """Where the tile of a workgroup lies. Those that follow each other take the same columns, which caches keep."""

    def __init__(self, s: Shader, group: ShaderValue, height: int) -> None:
        self.s = s
        self.rows, self.columns, self.depth, inner = (s.number(at) for at in range(4))
        self._x, self._y = ([s.number(4 + 4 * side + at) for at in range(4)] for side in range(2))
        self.across = group / s.rows
        down = group - self.across * s.rows
        tiles = (self.rows + (height - 1)) / height
        self._batch = down / tiles
        self.first = (down - self._batch * tiles) * height
        outer = self._batch / inner
        index = self._batch - outer * inner
        self._x_base, self._y_base = (outer * strides[0] + index * strides[1] for strides in (self._x, self._y))

    def left_row(self, row: ShaderValue) -> ShaderValue:
        """Where a row of the left side begins; beyond the last, that one."""
        return self._x_base + self.s.least(row, self.rows - 1) * self._x[2]

    def right_column(self, column: ShaderValue) -> ShaderValue:
        """Where a column of the right side begins; beyond the last, that one."""
        return self._y_base + self.s.least(column, self.columns - 1) * self._y[3]

    def sides(self, x: TensorOperand, y: TensorOperand, left: bool, right: bool) -> tuple[Side, Side]:
        """Both sides of a block, from its first row and column on; whether rows, and columns, lie side by side."""
        row, column = self.first, self.across * SIDE
        begins = self._x_base + row * self._x[2], self._y_base + column * self._y[3]
        return (
            Side(x, begins[0], self.rows - row, self._x[2], self._x[3], left),
            Side(y, begins[1], self.columns - column, self._y[3], self._y[2], right),
        )

    def right_begin(self) -> ShaderValue:
        """Where the right side begins."""
        return self._y_base

    def along_left(self, k: ShaderValue) -> ShaderValue:
        """How far an element of a row lies from its begin."""
        return k * self._x[3]

    def along_right(self, k: ShaderValue) -> ShaderValue:
        """How far an element of a column lies from its begin."""
        return k * self._y[2]

    def result(self, row: ShaderValue, column: ShaderValue) -> ShaderValue:
        """The place of a result."""
        return (self._batch * self.rows + row) * self.columns + column


def _element(s: Shader, grid: _Grid, row: ShaderValue, column: ShaderValue, found: ShaderValue) -> ResultElement:
    dtype = s.operands[-1].dtype
    done = rounded(s, found, dtype) if dtype.is_float else scalar.wrapped(s, found, dtype)
    return ResultElement((row < grid.rows) & (column < grid.columns), grid.result(row, column), done)


def write_broad(s: Shader, *, each: int, height: int = 1) -> None:
    """Lanes along the columns, of which a lane takes `each`."""
    x, y, out = s.operands
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        grid, lane = _Grid(s, group, height), s.lane()
        columns = [(grid.across * each + at) * s.local_size + lane for at in range(each)]
        sums = [[s.variable(out.kind, 0) for _ in columns] for _ in range(height)]
        lefts = [grid.left_row(grid.first + at) for at in range(height)]
        rights = [grid.right_column(column) for column in columns]

        def multiply(k: ShaderValue, left: Sequence[ShaderValue]) -> None:
            right = [s.cast(y.load(place + grid.along_right(k)), out.kind) for place in rights]
            for line, a in zip(sums, left, strict=True):
                for total, b in zip(line, right, strict=True):
                    total.set(total.get() + a * b)

        along(s, grid.depth, lefts, lambda row, k: x.load(row + grid.along_left(k)), multiply)
        places = product([grid.first + at for at in range(height)], columns)
        found = (total.get() for line in sums for total in line)
        s.hand_on([_element(s, grid, *place, each) for place, each in zip(places, found, strict=True)])


def write_tiles(s: Shader, *, left: bool, right: str, whole: bool, biased: bool, height: int = 1) -> None:
    """Tiles of sums; `left` and `right` say how elements lie side by side, `whole` that the depth is in fours."""
    x, y, *biases, out = s.operands
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        grid, lane = _Grid(s, group, height), s.lane()
        rows = [grid.left_row(grid.first + row) for row in rows_of_lane(s, height)]
        first = (grid.across * s.local_size + lane) * QUAD
        columns = [first + at for at in range(QUAD)]
        if right != "columns":
            columns = [(grid.across * QUAD + at) * s.local_size + lane for at in range(QUAD)]
        begins = [grid.right_column(column) for column in columns]
        quads = grid.right_begin() + s.least(first, grid.columns - QUAD)
        sums = [[s.variable(out.kind, 0) for _ in columns] for _ in range(height)]

        def of_rows(k: ShaderValue, count: int) -> Sequence[Sequence[ShaderValue]]:
            if left:
                return list(zip(*(x.quad(row + k) for row in rows), strict=True))
            return [[x.load(row + grid.along_left(k + at)) for row in rows] for at in range(count)]

        def of_columns(k: ShaderValue, count: int) -> Sequence[Sequence[ShaderValue]]:
            if right == "depth":
                return list(zip(*(y.quad(begin + k) for begin in begins), strict=True))
            steps = [grid.along_right(k + at) for at in range(count)]
            if right == "columns":
                return [y.quad(quads + step) for step in steps]
            return [[y.load(begin + step) for begin in begins] for step in steps]

        add_products(s, sums, grid.depth, of_rows, of_columns, whole=whole)
        lines = [grid.first + at for at in range(height)]
        shifts = [biases[0].load(s.least(line, grid.rows - 1)) if biased else None for line in lines]
        places = product(lines, columns)
        found = (
            total.get() if shift is None else total.get() + shift
            for line, shift in zip(sums, shifts, strict=True)
            for total in line
        )
        s.hand_on([_element(s, grid, *place, each) for place, each in zip(places, found, strict=True)])


def write_blocks(s: Shader, *, left: bool, right: bool, height: int = 1) -> None:
    """Blocks of sums; `left` and `right` say whether the rows, and the columns, lie side by side."""
    x, y, _ = s.operands
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        grid = _Grid(s, group, height)
        found = add_blocks(s, *grid.sides(x, y, left, right), grid.depth)
        down, across = own_lines(s)
        places = product([grid.first + line for line in down], [grid.across * SIDE + line for line in across])
        sums = (total for row in found for total in row)
        s.hand_on([_element(s, grid, *place, each) for place, each in zip(places, sums, strict=True)])


def write_deep(s: Shader, *, height: int = 1) -> None:
    """Lanes along the depth."""
    x, y, out = s.operands
    s.exact = False
    with s.groups(s.rows * s.cols) as group:
        grid, lane = _Grid(s, group, height), s.lane()
        columns = [grid.across * _DEEP + at for at in range(_DEEP)]
        lines = [grid.first + at for at in range(height)]
        sums = [[s.variable(out.kind, 0) for _ in columns] for _ in lines]
        lefts, rights = [grid.left_row(row) for row in lines], [grid.right_column(column) for column in columns]
        with s.loop(lane, grid.depth, s.local_size) as k:
            left = [x.load(place + grid.along_left(k)) for place in lefts]
            right = [s.cast(y.load(place + grid.along_right(k)), out.kind) for place in rights]
            for line, a in zip(sums, left, strict=True):
                for total, b in zip(line, right, strict=True):
                    total.set(total.get() + a * b)
        parts = [total.get() for line in sums for total in line]
        whole = s.together(parts, lambda a, b: [one + other for one, other in zip(a, b, strict=True)])
        with s.when(lane.equals(0)):
            places = product(lines, columns)
            s.hand_on([_element(s, grid, *place, found) for place, found in zip(places, whole, strict=True)])
