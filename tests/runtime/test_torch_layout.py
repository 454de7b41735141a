"""How results lie in memory: strides, gaps, repetitions and sharing, as eager has them, on every target."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from assay.evidence.fuzz.torch_story import shared_memory
from assay.frontends.torch.decompositions import decompositions, rules_of_eager
from assay.frontends.torch.private.dynamo import aot_autograd
from assay.frontends.torch.private.ops import pytree


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "expand": lambda y: y.expand(2, *y.shape),
    "unfold": lambda y: y.unfold(0, 2, 1),
    "as_strided": lambda y: y.as_strided((3, 2), (1, 2), 1),
    "chunk": lambda y: y.chunk(2, 1),
    "last chunk": lambda y: y.chunk(2, 1)[-1],
    "split": lambda y: y.split(2, 0),
    "tensor_split": lambda y: y.tensor_split(2, 1)[0],
    "every other": lambda y: y[::2],
    "a column": lambda y: y[:, 1],
    "turned": lambda y: y.t(),
    "narrow": lambda y: y.narrow(1, 1, 2),
    "diagonal": lambda y: y.diagonal(),
    "select": lambda y: y.select(0, 1),
    "an axis more": lambda y: y[:, None, 1:],
    "repeated and cut": lambda y: y[None].expand(3, *y.shape)[:, 1:, ::2],
}
"""Ways to look at a tensor of two axes."""

WHOLES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a result": lambda x: x.sin(),
    "an argument": lambda x: x,
    "a turned result": lambda x: (x.t() * 2).t(),
}


def strides(tensor: torch.Tensor) -> list[int]:
    """Those that matter: any would do along an axis of size 1."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def tensors(outcome: Any) -> list[torch.Tensor]:
    return list(outcome) if isinstance(outcome, Sequence) else [outcome]


def alone(whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Every view, each of a tensor of its own."""

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [each for number, view in enumerate(VIEWS.values()) for each in tensors(view(whole(x + number)))]

    return function


def beside(whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """Every view of one tensor, and that tensor."""

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        y = whole(x)
        return [y, *(each for view in VIEWS.values() for each in tensors(view(y)))]

    return function


@pytest.mark.parametrize("whole", WHOLES)
@pytest.mark.parametrize("how", [alone, beside])
def test_views_lie_as_those_of_eager_do(how: Callable[..., Any], whole: str, target_name: str) -> None:
    """With gradients and without, for sizes that are not the first ones too."""
    function = how(WHOLES[whole])
    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False}, dynamic=True)
    for rows, grad in ((4, False), (6, False), (5, True)):
        x = torch.randn(rows, 4, requires_grad=grad)
        mine, theirs = compiled(x), function(x)
        assert [strides(each) for each in mine] == [strides(each) for each in theirs]
        assert shared_memory(mine, [x]) == shared_memory(theirs, [x])
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_arguments_have_the_gradients_of_eager(dynamic: bool, target_name: str) -> None:
    """Also of one whose elements share memory: the gradient of `as_strided` would be their mean."""

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2, *(each for view in VIEWS.values() for each in tensors(view(x)))]

    def gradient(call: Callable[..., Any], rows: int) -> Any:
        x = torch.ones(64).as_strided((rows, 4), (1, 1)).requires_grad_()
        results = call(x)
        torch.autograd.backward(results, [torch.full_like(each, 1.0 + at) for at, each in enumerate(results)])
        return x.grad

    compiled = torch.compile(
        function, backend="assay", options={"target": target_name, "cache": False}, dynamic=dynamic or None
    )
    for rows in (4, 6):
        torch.testing.assert_close(gradient(compiled, rows), gradient(function, rows))


def test_what_is_kept_for_the_backward_graph_is_not_laid_out_for_nobody() -> None:
    """Only what the caller sees is copied into a layout of its own."""
    from assay.runtime.torch.graphs import recording

    def function(x: torch.Tensor) -> torch.Tensor:
        a, b = (x * 2).chunk(2, 1)
        return (a.sin() * b.exp()).sum()

    with recording() as graphs:
        torch.compile(function, backend="assay")(torch.randn(3, 4, requires_grad=True)).backward()
    assert {graph.phase for graph in graphs} == {"forward", "backward"}
    assert not any(entry.spread for graph in graphs for entry in graph.imported.returned)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", [(1, 0), (2, 1, 0), (2, 0, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 4, 1, 2, 3)])
def test_batch_norms_lie_as_those_of_eager_do(order: tuple[int, ...], training: bool, target_name: str) -> None:
    """Whatever order the axes of their input lie in: only channels that are last stay so."""
    x = torch.randn([2, 3, 4, 5, 6][: len(order)]).permute(order)

    def function(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        y = F.batch_norm(x, mean, variance, training=training)
        return y, y.sin(), y.transpose(0, 1)

    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})
    for grad in (False, True):
        given = [(x.detach().requires_grad_(grad), torch.zeros(x.shape[1]), torch.ones(x.shape[1])) for _ in range(2)]
        mine, theirs = compiled(*given[0]), function(*given[1])
        torch.testing.assert_close(mine, theirs)
        assert [strides(each) for each in mine] == [strides(each) for each in theirs]


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_losses_of_single_pixels_lie_plainly(order: tuple[int, ...], target_name: str) -> None:
    """Whatever order the axes of their targets lie in."""
    chosen = torch.zeros(2, 3, 4, dtype=torch.int64).permute(order)
    x = torch.randn(chosen.shape[0], 3, *chosen.shape[1:])

    def function(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, chosen, reduction="none")

    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})
    mine, theirs = compiled(x, chosen), function(x, chosen)
    torch.testing.assert_close(mine, theirs)
    assert strides(mine) == strides(theirs)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (2, 1, 3, 0)])
def test_the_logarithm_of_a_sigmoid_lies_plainly(order: tuple[int, ...], target_name: str) -> None:
    x = torch.randn(2, 3, 4, 5).permute(order)
    compiled = torch.compile(F.logsigmoid, backend="assay", options={"target": target_name, "cache": False})
    mine, theirs = compiled(x), F.logsigmoid(x)
    torch.testing.assert_close(mine, theirs)
    assert strides(mine) == strides(theirs)


def test_a_view_follows_its_argument_wherever_that_lies(target_name: str) -> None:
    """In memory of its own, in the middle of another, and at its end."""

    def function(x: torch.Tensor) -> Any:
        return x.detach(), x[1:], x.t()[:2], x.view(-1)[2:5]

    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})
    whole = torch.randn(9, 2)
    for x in (whole[4:], torch.randn(5, 2), whole[2:7], whole[:5]):
        mine, theirs = compiled(x), function(x)
        assert [each.data_ptr() for each in mine] == [each.data_ptr() for each in theirs]
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("shape", [(3, 0, 4), (0, 2), (0,), (2, 3, 0)])
def test_results_without_elements_have_strides_too(shape: tuple[int, ...], target_name: str) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2, x.sum(0), x.new_zeros(x.shape)]

    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})
    x = torch.zeros(shape)
    for ours, eager in zip(compiled(x), function(x), strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (eager.shape, eager.stride(), eager.dtype)


def test_views_whose_sizes_only_torch_can_express(target_name: str) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        half = F.interpolate(x, scale_factor=0.5)
        return [half, half.expand(2, *half.shape), half[:, 1:]]

    compiled = torch.compile(function, backend="assay", options={"target": target_name, "cache": False}, dynamic=True)
    for size in (7, 10):
        x = torch.rand(2, 3, size, size)
        found, eager = compiled(x), function(x)
        assert [tensor.stride() for tensor in found] == [tensor.stride() for tensor in eager]
        assert shared_memory(found, [x]) == shared_memory(eager, [x])


WRITTEN_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "select_scatter": lambda x: torch.select_scatter(x, x.select(0, 0) * 2, 0, -1),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:1] * 2, 0, 0, 1),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x.diagonal() * 2),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[0, :2] * 2, (2,), (2,), 0),
}


@pytest.mark.parametrize("name", WRITTEN_VIEWS)
def test_views_that_are_written_lie_as_the_whole_does(name: str, target_name: str) -> None:
    x, function = torch.randn(4, 18)[..., ::2], WRITTEN_VIEWS[name]
    found = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})(x)
    assert (found.tolist(), found.stride()) == (function(x).tolist(), function(x).stride())


ORDERS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.rand(5, 3),
    "turned": lambda: torch.rand(3, 5).mT,
    "repeated rows": lambda: torch.rand(1, 3).expand(5, 3),
    "repeated columns": lambda: torch.rand(5, 1).expand(5, 3),
    "every other column": lambda: torch.rand(5, 6)[:, ::2],
    "a row": lambda: torch.rand(3),
}
PAIRS = [
    op
    for op in op_db
    if isinstance(op, BinaryUfuncInfo) and op.supports_dtype(torch.float32, "cpu") and "jiterator" not in op.name
]
"""torch's ops of two tensors, element by element."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("left", "right"), [each for each in itertools.permutations(ORDERS, 2) if "turned" in each])
def test_results_of_two_operands_lie_in_the_order_of_both(left: str, right: str, dynamic: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [op(x, y) for op in PAIRS] + [torch.clamp(x, y, x), torch.where(x > 0, x, y), torch.pow(2.0, x)]

    given = ORDERS[left](), ORDERS[right]()
    found = torch.compile(function, backend="assay", options={"target": "reference"}, dynamic=dynamic or None)(*given)
    names = [op.name for op in PAIRS] + ["clamp", "where", "power"]
    wrong = {
        name: (strides(mine), strides(theirs))
        for name, mine, theirs in zip(names, found, function(*given), strict=True)
        if strides(mine) != strides(theirs)
    }
    assert not wrong


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("new", [(), (1,), (2,), (1, 1), (1, 2), (2, 1)], ids=str)
def test_results_of_expanded_tensors_lie_as_eagers_do(new: tuple[int, ...], dynamic: bool) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        turned = [x.permute(order) for order in itertools.permutations(range(4))]
        expanded = [
            each.expand(*new, *(-1 if size > 1 else more for size in each.shape)) for each in turned for more in (1, 3)
        ]
        return [each.neg() for each in expanded]

    x = torch.rand(2, 4, 1, 1)
    found = torch.compile(function, backend="assay", options={"target": "reference"}, dynamic=dynamic or None)(x)
    assert list(map(strides, found)) == list(map(strides, function(x)))


SINGLE = [op for op in op_db if isinstance(op, UnaryUfuncInfo) and "jiterator" not in op.name]
"""torch's ops of one tensor, element by element."""
SINGLE_ORDERS: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "turned": lambda dtype: torch.rand(3, 5, dtype=dtype).mT,
    "channels last": lambda dtype: torch.rand(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last),
    "every other column": lambda dtype: torch.rand(5, 6, dtype=dtype)[:, ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("order", SINGLE_ORDERS)
def test_results_of_one_operand_lie_as_eagers_do(order: str, dtype: torch.dtype) -> None:
    given = SINGLE_ORDERS[order](dtype)
    ops = [op for op in SINGLE if op.supports_dtype(dtype, "cpu") and takes_one(op, given)]

    def function(x: torch.Tensor) -> list[Any]:
        return [op(x) for op in ops]

    found = torch.compile(function, backend="assay", options={"target": "reference"})(given)
    wrong = {
        op.name: (laid_out(mine), laid_out(theirs))
        for op, mine, theirs in zip(ops, found, function(given), strict=True)
        if laid_out(mine) != laid_out(theirs)
    }
    assert not wrong


@pytest.mark.parametrize("training", [False, True])
def test_a_relu_with_random_slopes_lies_plainly(training: bool, target_name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rrelu(x, training=training)

    x = SINGLE_ORDERS["turned"](torch.float32)
    found = torch.compile(function, backend="assay", options={"target": target_name, "cache": False})(x)
    assert strides(found) == strides(function(x))


def takes_one(op: Any, x: torch.Tensor) -> bool:
    """Whether an op needs nothing beside the tensor."""
    try:
        op(x)
    except (TypeError, RuntimeError):
        return False
    return True


def laid_out(result: Any) -> list[Any]:
    """The strides of one result or of several."""
    return [strides(each) for each in (result if isinstance(result, tuple) else (result,))]


ROLLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "along an axis": lambda x: x.roll(3, 2),
    "backwards": lambda x: x.roll(-1, 0),
    "by nothing": lambda x: x.roll(0, 2),
    "all the way round": lambda x: x.roll(5, -1),
    "along two axes": lambda x: x.roll((1, 2), (0, -2)),
    "without axes": lambda x: x.roll(7),
}
ROLLED: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(2, 3, 4, 5),
    "channels last": lambda: torch.randn(2, 4, 5, 3).permute(0, 3, 1, 2),
    "in another order": lambda: torch.randn(2, 5, 4, 3).permute(0, 3, 2, 1),
    "empty": lambda: torch.randn(2, 3, 0, 5),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("order", ROLLED)
def test_rolled_elements_lie_as_eagers_do(order: str, dynamic: bool, target_name: str) -> None:
    x = ROLLED[order]()

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [roll(x) for roll in ROLLS.values()]

    compiled = torch.compile(function, backend="assay", options={"target": target_name}, dynamic=dynamic)
    for name, mine, eager in zip(ROLLS, compiled(x), function(x), strict=True):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, msg=name)
        assert mine.stride() == eager.stride(), name


IMAGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unfold": lambda x: F.unfold(x, 1, stride=2),
    "unfold of pairs": lambda x: F.unfold(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), [2, 2]),
    "native_batch_norm": lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0],
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "baddbmm": lambda x: torch.baddbmm(x[0], x[0], x[0].mT @ x[0]),
    "division by a number": lambda x: torch.div(x, torch.tensor(0.3), rounding_mode="floor"),
    "gradient of a dropout": lambda x: torch.ops.aten.native_dropout_backward(x, x > 0, 2.0),
}
IMAGE_ORDERS: dict[str, tuple[int, ...]] = {
    "plain": (0, 1, 2, 3),
    "channels last": (0, 2, 3, 1),
    "reversed": (3, 2, 1, 0),
    "channels first": (1, 0, 2, 3),
}


def in_order(x: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same elements, the axes from the outermost to the innermost in memory in this order."""
    return x.permute(order).contiguous().permute(sorted(range(len(order)), key=order.__getitem__))


@pytest.mark.parametrize("order", IMAGE_ORDERS)
def test_images_lie_as_eagers_do(order: str, target_name: str) -> None:
    x = in_order(torch.randn(2, 4, 6, 6), IMAGE_ORDERS[order])

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [image(x) for image in IMAGES.values()]

    compiled = torch.compile(function, backend="assay", options={"target": target_name})
    for name, mine, eager in zip(IMAGES, compiled(x), function(x), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4, msg=name)
        assert strides(mine) == strides(eager), name


UNASKED = {
    "_batch_norm_with_update": "torch writes to statistics there; its callers ask for batch_norm",
    "_native_batch_norm_legit": "torch writes to statistics there; its callers ask for batch_norm",
}


def traced(function: Callable[..., Any], arguments: Any, named: Any) -> list[torch.Tensor]:
    """The results as the graph that Assay is given has them."""
    found: list[torch.Tensor] = []

    def keep(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Any:
        results = next(node for node in reversed(graph.graph.nodes) if node.op == "output").args[0]
        found.extend(node.meta["val"] for node in results if isinstance(node, torch.fx.Node))
        return graph

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=keep, decompositions=decompositions())
    with torch.no_grad(), rules_of_eager():
        torch.compile(lambda *a, **k: function(*a, **k), backend=backend, fullgraph=True)(*arguments, **named)
    return [each for each in found if isinstance(each, torch.Tensor)]


def reordered(value: Any, order: int) -> Any:
    """A tensor of two axes or more in another order."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() < 2:
        return value
    axes = tuple(range(value.dim()))
    orders = (axes[::-1], (axes[1], axes[0], *axes[2:]), (axes[0], *axes[2:], axes[1]))
    return in_order(value.detach(), orders[order])


def knows_strides(tensor: torch.Tensor) -> bool:
    """Of tensors without elements anything would do."""
    return all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride())) and tensor.numel() > 0


@pytest.mark.slow
@pytest.mark.parametrize("order", range(3))
def test_all_ops_are_traced_with_the_strides_of_eager(order: int) -> None:
    tried, wrong = 0, list[str]()
    for op in op_db:
        if torch.float32 not in op.dtypes or op.name in UNASKED:
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32), 2):
            arguments = pytree.tree_map(lambda x: reordered(x, order), (sample.input, *sample.args))
            try:
                eager = pytree.tree_leaves(op.op(*arguments, **sample.kwargs))
                found = traced(op.op, arguments, sample.kwargs)
            except Exception:  # what is refused, or cannot be traced whole, is others' business
                continue
            rights = [each for each in eager if isinstance(each, torch.Tensor)]
            if [str(each.shape) for each in found] != [str(each.shape) for each in rights]:
                continue  # what the op writes to comes first
            tried += 1
            for mine, right in zip(found, rights, strict=True):
                if knows_strides(mine) and right.layout is torch.strided and strides(mine) != strides(right):
                    wrong.append(f"{op.name} {op.variant_test_name}: {mine.stride()} instead of {right.stride()}")
    assert tried > 700
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("grad", [True, False])
def test_results_beside_a_checked_solution_lie_as_eagers_do(grad: bool) -> None:
    """What checks for errors has an effect, which torch hands through the graph as a result before all others."""
    weight = torch.rand(3, 3, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        solved = torch.linalg.solve(x @ x.t() + 3 * torch.eye(3), x) @ weight
        inverse = torch.linalg.inv(x + 3 * torch.eye(3))
        return solved.sin(), inverse.expand(4, 3, 3), x.exp().expand(2, 3, 3)

    x = torch.rand(3, 3)
    with torch.set_grad_enabled(grad):
        expected, found = function(x), torch.compile(function, backend="assay")(x)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())
        torch.testing.assert_close(mine, theirs)


def _parts(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return z, torch.view_as_real(z), torch.view_as_real(z)[1:, None]


OTHER_KINDS: dict[str, Callable[[torch.Tensor], Sequence[torch.Tensor]]] = {
    "parts": lambda x: (torch.view_as_real(torch.complex(x, -x))[None], torch.view_as_real(torch.complex(x, x))),
    "parts beside the whole": lambda x: _parts(torch.complex(x, -x)),
    "parts of a part": lambda x: (lambda y: (y[None], y))(torch.view_as_real(torch.complex(x, x))),
    "real part": lambda x: (lambda z: (z, z.real, z.imag[1:]))(torch.complex(x, x + 1).mT),
    "whole of parts": lambda x: (lambda y: (y, torch.view_as_complex(y), y[..., 1]))(torch.stack((x, -x), -1)),
    "bits": lambda x: (lambda y: (y, y.view(torch.int32), y[1:].view(torch.int16)))(x.detach() * 2),
}
"""Results in one piece of memory that have several dtypes, or are views of what has another one."""


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", OTHER_KINDS)
def test_views_as_another_dtype_share_memory_as_in_eager(name: str, grad: bool, target_name: str) -> None:
    function = OTHER_KINDS[name]
    x = torch.rand(3, 4, requires_grad=grad)
    found = torch.compile(function, backend="assay", options={"target": target_name})(x)
    expected = function(x)
    assert list(map(strides, found)) == list(map(strides, expected))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert shared_memory(found, [x]) == shared_memory(expected, [x])
    if expected[0].requires_grad:
        sums = [torch.stack([each.abs().sum() for each in given]).sum() for given in (found, expected)]
        torch.testing.assert_close(*(torch.autograd.grad(each, x)[0] for each in sums))
