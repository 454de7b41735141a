"""Softmax and the normalizations: a workgroup takes a line that lies in one piece, an invocation one that does not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from assay.ir.dims import Dim, floordiv, product
from assay.ir.graph import Node, Value
from assay.ops.shapes import axis_of
from assay.targets.base import limitation
from assay.targets.shared.limitations import Broadcasts, other_roundings, unclear_broadcast
from assay.targets.shared.lines import lines
from assay.targets.shared.planner import Planner
from assay.targets.shared.tensors import shape_of
from assay.targets.shared.views import View
from assay.targets.vulkan import functions as f
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.kernels.elements import FLOAT
from assay.targets.vulkan.kernels.reduction import combined, reduced
from assay.targets.vulkan.registry import emits
from assay.targets.vulkan.shader import Shader, TensorOperand
from assay.targets.vulkan.storage import rounded
from assay.targets.vulkan.templates import template


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of elements, as one invocation sees it: which are its own, and where they lie."""

    s: Shader
    x: TensorOperand
    length: ShaderValue
    place: Callable[[ShaderValue], ShaderValue]
    shared: bool

    def whole(self, kind: str, of: Callable[[ShaderValue], ShaderValue] = lambda value: value) -> ShaderValue:
        """What all elements, put through `of`, are reduced to."""
        s, begin = self.s, self.s.lane() if self.shared else self.s.value(0, "u32")
        step = s.local_size if self.shared else 1
        found = reduced(s, kind, self.x, (begin, self.length, step), self.place, of)
        if not self.shared:
            return found
        return s.together([found], lambda a, b: [combined(kind, a[0], b[0], self.x.dtype)])[0]

    @contextmanager
    def elements(self) -> Generator[ShaderValue]:
        """The indices of the elements that this invocation writes."""
        s, begin = self.s, self.s.lane() if self.shared else self.s.value(0, "u32")
        with s.loop(begin, self.length, s.local_size if self.shared else 1) as at:
            yield at


@contextmanager
def _each_line(s: Shader, x: TensorOperand, length: ShaderValue, below: ShaderValue, last: bool) -> Generator[_Line]:
    if last:
        with s.groups(s.rows) as row:
            yield _Line(s, x, length, lambda at: row * length + at, True)
        return
    with s.items(s.rows * below) as item:
        row = item / below
        first = row * length * below + (item - row * below)
        yield _Line(s, x, length, lambda at: first + at * below, False)


# --- softmax


@emits("softmax", FLOAT, unless=(other_roundings("precision", "accumulate"),))
def softmax(p: Planner, node: Node) -> None:
    """Exponentials over their sum."""
    _softmax(p, node, logarithm=False)


@emits("log_softmax", FLOAT)
def log_softmax(p: Planner, node: Node) -> None:
    """The logarithm of it."""
    _softmax(p, node, logarithm=True)


def _softmax(p: Planner, node: Node, *, logarithm: bool) -> None:
    x = lines(p, node.inputs[0], node.attrs["axis"])
    result = p.result(node.outputs[0], x.order)
    last = x.below == 1
    kinds = [x.view.dtype, result.dtype]
    kernel = template(write_softmax, kinds, 2, by_group=last, texels=(1,), last=last, logarithm=logarithm)
    p.step(kernel, [x.view, result], [x.length, x.below], rows=x.above, cols=1 if last else x.below)


def write_softmax(s: Shader, *, last: bool, logarithm: bool) -> None:
    """The largest element, the sum of exponentials, then the results: NaN if the largest is infinite."""
    x, result = s.operands
    with _each_line(s, x, s.number(0), s.number(1), last) as line:
        top = line.whole("max")
        shift = s.select(f.is_infinite(top), s.value(0.0, top.kind), top)
        total = line.whole("sum", lambda value: f.exp(value - shift))
        total = s.select(f.is_infinite(top), f.nan(s, top.kind), total)
        scale = f.log(total) if logarithm else 1.0 / total
        with line.elements() as at:
            value = x.load(line.place(at)) - shift
            found = value - scale if logarithm else f.exp(value) * scale
            result.store(line.place(at), rounded(s, found, result.dtype))


# --- normalizations over trailing axes


def _parameters(node: Node) -> Broadcasts:
    return [(shape_of(value), shape_of(node.inputs[0])) for value in node.inputs[1:] if value is not None]


_UNCLEAR_PARAMETERS = unclear_broadcast(_parameters)


@emits("layer_norm", FLOAT, unless=(_UNCLEAR_PARAMETERS,))
def layer_norm(p: Planner, node: Node) -> None:
    """Rows of all trailing axes."""
    _trailing_norm(p, node, centred=True)


@emits("rms_norm", FLOAT, unless=(_UNCLEAR_PARAMETERS,))
def rms_norm(p: Planner, node: Node) -> None:
    """The same without the mean."""
    _trailing_norm(p, node, centred=False)


def _trailing_norm(p: Planner, node: Node, *, centred: bool) -> None:
    x = p.dense(node.inputs[0])
    axis = axis_of(node.attrs["axis"], x.rank)
    length = product(x.shape[axis:])
    scale, bias = (_parameter(p, value, x, axis) for value in (*node.inputs[1:], None, None)[:2])
    steps: list[Dim] = [0 if view is None or view.rank < x.rank else length for view in (scale, bias)]
    _norm(p, node, x, (scale, bias), product(x.shape[:axis]), [length, *steps], centred=centred, by_channel=False)


def _parameter(p: Planner, value: Value | None, x: View, axis: int) -> View | None:
    """A scale or bias with an element for each of a row, or if rows differ in theirs, for each of x."""
    if value is None:
        return None
    view = p.view(value)
    above = max(view.rank - (x.rank - axis), 0)
    if all(size == 1 for size in view.shape[:above]):
        view = View(view.storage, view.dtype, view.shape[above:], view.strides[above:], view.offset)
    expanded = view.expanded(x.shape[axis:] if view.rank <= x.rank - axis else x.shape)
    return expanded if expanded.is_dense else p.copied(expanded)


# --- normalizations of channels


@limitation("there is no axis of channels")
def _no_channels(node: Node) -> bool:
    return len(shape_of(node.inputs[0])) < 2


@emits("group_norm", FLOAT, unless=(_no_channels,))
def group_norm(p: Planner, node: Node) -> None:
    """Rows of some channels."""
    _channel_norm(p, node, node.attrs["groups"])


@emits("instance_norm", FLOAT, unless=(_no_channels,))
def instance_norm(p: Planner, node: Node) -> None:
    """Rows of one channel."""
    _channel_norm(p, node, shape_of(node.inputs[0])[1])


def _channel_norm(p: Planner, node: Node, groups: Dim) -> None:
    x = p.dense(node.inputs[0])
    scale, bias = (None if value is None else p.dense(value) for value in (*node.inputs[1:], None, None)[:2])
    run = product(x.shape[2:])
    group = floordiv(x.shape[1], groups)
    rows, sizes = x.shape[0] * groups, [group * run, run, groups]
    _norm(p, node, x, (scale, bias), rows, sizes, centred=True, by_channel=True)


def _norm(
    p: Planner,
    node: Node,
    x: View,
    parameters: tuple[View | None, View | None],
    rows: Dim,
    sizes: list[Dim],
    *,
    centred: bool,
    by_channel: bool,
) -> None:
    scale, bias = parameters
    operands = [view for view in (x, scale, bias, p.result(node.outputs[0])) if view is not None]
    kernel = template(
        write_norm,
        [view.dtype for view in operands],
        3,
        by_group=True,
        texels=(1,) * (len(operands) - 1),
        centred=centred,
        by_channel=by_channel,
        scaled=scale is not None,
        shifted=bias is not None,
        epsilon=float(node.attrs["epsilon"]),
    )
    p.step(kernel, operands, sizes, rows=rows)


def write_norm(s: Shader, *, centred: bool, by_channel: bool, scaled: bool, shifted: bool, epsilon: float) -> None:
    """Elements over the root of their mean square, from their mean if they are `centred`.

    `by_channel`, the numbers after the length are how many elements a channel has and how many rows make up an image;
    else they say how far the scale and the bias of the next row lie.
    """
    x, *others, result = s.operands
    scale = others.pop(0) if scaled else None
    bias = others.pop(0) if shifted else None
    length, first, second = (s.number(at) for at in range(3))
    one = s.value(1, "u32")
    with s.groups(s.rows) as row:
        line = _Line(s, x, length, lambda at: row * length + at, True)
        count = s.cast(length, x.kind)
        mean = line.whole("sum") / count if centred else s.value(0.0, x.kind)
        power = line.whole("sum", lambda value: (value - mean) * (value - mean)) / count
        factor = 1.0 / f.sqrt(power + epsilon)
        with line.elements() as at:
            found = (x.load(line.place(at)) - mean) * factor
            channel = (row % second) * (length / s.greatest(first, one)) + at / first if by_channel else None
            if scale is not None:
                found = found * scale.load(row * first + at if channel is None else channel)
            if bias is not None:
                found = found + bias.load(row * second + at if channel is None else channel)
            result.store(line.place(at), rounded(s, found, result.dtype))
