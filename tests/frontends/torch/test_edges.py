"""Where ordinary programs end: no elements, no weight, windows of nothing but padding. As eager has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

TARGETS = pytest.mark.parametrize("target", ["reference", "cpu"])


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Callable[..., Any], target: str, dynamic: bool | None = None) -> Callable[..., Any]:
    return torch.compile(function, backend="assay", options={"target": target, "cache": False}, dynamic=dynamic)


def results(function: Callable[..., Any], given: tuple[torch.Tensor, ...], grad: bool) -> list[torch.Tensor | None]:
    """Outputs and, if asked for, the gradients of their sums."""
    arguments = [x.clone().requires_grad_(grad and (x.is_floating_point() or x.is_complex())) for x in given]
    outcome = function(*arguments)
    outputs = list(outcome) if isinstance(outcome, tuple) else [outcome]
    tops = [each for each in outputs if each.requires_grad]
    if tops:
        torch.autograd.backward(tops, [torch.ones_like(top) for top in tops])
    return [*outputs, *(x.grad for x in arguments if x.requires_grad)]


def agree(mine: Callable[..., Any], theirs: Callable[..., Any], *given: torch.Tensor, grad: bool = True) -> None:
    for first, second in zip(results(mine, given, grad), results(theirs, given, grad), strict=True):
        assert (first is None) == (second is None)
        if first is not None:
            torch.testing.assert_close(first, second, equal_nan=True)


# --- no elements

SMOOTH = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}
MODES = {axes: ("nearest", "nearest-exact", "area", *smooth) for axes, smooth in SMOOTH.items()}

EMPTY: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    "floats % 0": (lambda x: x % 0, lambda n: (torch.randn(n, 3),)),
    "take_along_dim": (
        lambda x, i: torch.take_along_dim(x, i, 1),
        lambda n: (torch.randn(n, 3), torch.zeros(n, 2, dtype=torch.int64)),
    ),
    "take_along_dim over rows": (
        lambda x, i: torch.take_along_dim(x, i, 0),
        lambda n: (torch.randn(n, 3), torch.zeros(n, 3, dtype=torch.int64)),
    ),
    **{
        f"conv_transpose{axes}d": (
            getattr(F, f"conv_transpose{axes}d"),
            lambda n, axes=axes: (torch.randn(n, 2, *[3] * axes), torch.randn(2, 3, *[2] * axes)),
        )
        for axes in (1, 2, 3)
    },
    **{
        f"{name}{axes}d with a stride": (
            lambda x, w, name=name, axes=axes: getattr(F, f"{name}{axes}d")(x, w, stride=3, padding=1, dilation=2),
            lambda n, axes=axes: (torch.randn(n, 4, *[3] * axes), torch.randn(4, 4, *[2] * axes)),
        )
        for name in ("conv", "conv_transpose")
        for axes in (1, 2, 3)
    },
    **{
        f"{mode} of {axes}": (
            lambda x, mode=mode: F.interpolate(x, scale_factor=2.0, mode=mode),
            lambda n, axes=axes: (torch.randn(n, 2, *[3] * axes),),
        )
        for axes, modes in MODES.items()
        for mode in modes
    },
}
"""Functions, and their arguments for a batch of a size."""


@TARGETS
@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_batch(name: str, target: str) -> None:
    """After others, in one function that takes every size."""
    function, given = EMPTY[name]
    every = compiled(function, target, dynamic=True)
    for count in (3, 0):
        agree(every, function, *given(count))


INDEXED: dict[str, Callable[..., torch.Tensor]] = {
    "index_add": lambda x, i, y: x.index_add(1, i, y),
    "index_add, scaled": lambda x, i, y: x.index_add(1, i, y, alpha=2),
    "index_copy": lambda x, i, y: x.index_copy(1, i, y),
    "index_fill": lambda x, i, y: x.index_fill(1, i, 1.5),
    "index_fill by a tensor": lambda x, i, y: x.index_fill(1, i, y.sum()),
}
"""With two positions along the second axis."""


@TARGETS
@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (0, 0), (2, 0), (2, 3, 2), (0, 0, 2)])
def test_positions_along_an_axis(name: str, shape: tuple[int, ...], target: str) -> None:
    """Where there is nothing beside the axis, eager may look at no position."""
    function = INDEXED[name]
    x, y, index = torch.randn(shape), torch.randn(shape[0], 2, *shape[2:]), torch.tensor([0, 0])
    index[1] = max(shape[1] - 1, 0)
    mine = compiled(function, target)
    for grad in (False, True):
        try:
            results(function, (x, index, y), grad)
        except (RuntimeError, IndexError):
            with pytest.raises((RuntimeError, IndexError)):
                results(mine, (x, index, y), grad)
        else:
            agree(mine, function, x, index, y, grad=grad)


@TARGETS
@pytest.mark.parametrize(
    "name", ["x % 0", "x // 0", "torch.remainder(x, y)", "x // y", "torch.div(x, y, rounding_mode='trunc')"]
)
def test_whole_numbers_by_zero(name: str, target: str) -> None:
    """No numbers are divided by zero without harm; any number is not."""
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def function(x, y): return {name}", scope)
    function = scope["function"]
    none, some, zero = torch.zeros(0, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64), torch.tensor([0])
    agree(compiled(function, target), function, none, zero, grad=False)
    for run in (function, compiled(function, target)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(some, zero)


# --- numbers that are none

OF_NAN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sign": torch.sign,
    "sgn": torch.sgn,
    "norm": lambda x: torch.norm(x, p=1, dim=0),
    "l1_loss": lambda x: F.l1_loss(x, x.detach().flip(0)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x.detach().flip(0), beta=2.0),
    "smooth_l1_loss, summed": lambda x: F.smooth_l1_loss(x, x.detach().flip(0), reduction="sum"),
    "huber_loss": lambda x: F.huber_loss(x, x.detach().flip(0)),
}


@TARGETS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", OF_NAN)
def test_nan_and_its_gradients(name: str, dtype: torch.dtype, target: str) -> None:
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -2.0, float("nan")]
    agree(compiled(OF_NAN[name], target), OF_NAN[name], torch.tensor(special, dtype=dtype))


# --- losses without weight

LOGITS = torch.tensor([[0.5, -1.0, 2.0, 0.25], [1.0, 0.0, -0.5, 1.5], [-2.0, 0.75, 0.5, 1.0]])
LIGHT = torch.tensor([0.0, 0.0, 1.0, 2.0])
"""Weights of classes, of which two count for nothing."""
CHOSEN = {
    "weighty": torch.tensor([2, 0, 3]),
    "weightless": torch.tensor([0, 1, 0]),
    "ignored": torch.tensor([-1, -1, -1]),
    "some ignored": torch.tensor([-1, 2, 0]),
    "none": torch.zeros(0, dtype=torch.int64),
}


@TARGETS
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("axes", [0, 2])
@pytest.mark.parametrize("chosen", CHOSEN)
def test_losses_and_their_gradients(chosen: str, axes: int, reduction: str, target: str) -> None:
    """A mean over no weight at all is NaN, where eager says so and nowhere else."""
    classes = CHOSEN[chosen]
    logits = LOGITS[: len(classes)].reshape(-1, 4, *[1] * axes).expand(-1, -1, *[2] * axes)
    classes = classes.reshape(-1, *[1] * axes).expand(-1, *[2] * axes)

    def function(y: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kinds = [(loss, weight) for loss in (F.nll_loss, F.cross_entropy) for weight in (None, LIGHT)]
        return tuple(
            loss(x, y, weight=weight, ignore_index=-1, reduction=reduction)
            for (loss, weight), x in zip(kinds, given, strict=True)
        )

    agree(compiled(function, target), function, classes, *[logits] * 4)


# --- windows of padding


@TARGETS
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_of_padding_alone_have_no_gradient(axes: int, target: str) -> None:
    """Eager writes beyond its memory there; the largest of windows that were cut out says what is right."""
    pool = getattr(F, f"max_pool{axes}d")

    def function(x: torch.Tensor) -> torch.Tensor:
        return pool(x, 2, stride=1, padding=1, dilation=3)

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        windows = F.pad(x, [1] * (2 * axes), value=-float("inf"))
        for axis in range(2, 2 + axes):
            windows = windows.unfold(axis, 4, 1)[..., ::3].amax(-1)
        return windows

    for size in (2, 3, 5):
        agree(compiled(function, target), by_hand, torch.randn(1, 2, *[size] * axes))


@TARGETS
def test_where_eager_says_that_the_largest_of_no_elements_lies(target: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.max_pool2d(x, 2, stride=1, padding=1, dilation=3, return_indices=True)

    agree(compiled(function, target), function, torch.randn(2, 1, 2, 3), grad=False)


@TARGETS
@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_complex_numbers_may_be_divided_by_zero(kind: torch.dtype, target: str) -> None:
    x = torch.tensor([0, 1, 1j, -1, 2 + 3j, complex("inf"), complex("nan")], dtype=kind)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(x / torch.zeros_like(x))

    agree(compiled(function, target), function, x, grad=False)
    agree(compiled(torch.abs, target), torch.abs, x)


_DRAWN = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(0))
_POOLS: dict[str, tuple[int, Callable[..., Any]]] = {
    "1d": (1, lambda x: F.max_pool1d(x, 3, 2, padding=1, ceil_mode=True)),
    "2d": (2, lambda x: F.max_pool2d(x, 3, 2, padding=1, dilation=2)),
    "3d": (3, lambda x: F.max_pool3d(x, 2, 1, padding=1)),
    "adaptive 1d": (1, lambda x: F.adaptive_max_pool1d(x, 3)),
    "adaptive 2d": (2, lambda x: F.adaptive_max_pool2d(x, (3, 2))),
    "adaptive 3d": (3, lambda x: F.adaptive_max_pool3d(x, 2)),
    "fractional": (2, lambda x: F.fractional_max_pool2d(x, 3, (2, 3), _random_samples=_DRAWN)),
}


@TARGETS
@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
@pytest.mark.parametrize("pool", _POOLS)
def test_of_several_nan_in_a_window_the_last_one_gets_the_gradient(pool: str, last: bool, target: str) -> None:
    axes, function = _POOLS[pool]
    x = torch.randn(2, 3, *[7] * axes)
    x = torch.where(torch.rand(x.shape) < 0.3, torch.tensor(float("nan")), x)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    agree(compiled(function, target), function, x)


@TARGETS
@pytest.mark.parametrize("align", [False, True], ids=["edges", "corners"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_what_lies_outside_of_an_image_is_not_read(mode: str, padding: str, align: bool, target: str) -> None:
    """An infinite or missing value at the edge does not spread to places beyond it."""

    def function(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, places, mode, padding, align_corners=align)

    special = torch.tensor([float("inf"), -float("inf"), float("nan")])
    x = torch.where(torch.rand(2, 2, 3, 4) < 0.4, special[torch.randint(0, 3, (2, 2, 3, 4))], torch.randn(2, 2, 3, 4))
    places = torch.randn(2, 5, 6, 2).mul(3).round() / 2
    agree(compiled(function, target), function, x, places)


# --- memory of its own


@TARGETS
@pytest.mark.parametrize("shape", [(4, 2, 4, 4), (4, 6, 4, 4), (0, 4, 1)])
def test_shuffled_channels_are_a_copy(shape: tuple[int, ...], target: str) -> None:
    """Even if there is nothing to shuffle."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.channel_shuffle(x, 2)

    given = torch.randn(shape)
    agree(compiled(function, target), function, given)
    assert given.numel() == 0 or compiled(function, target)(given).data_ptr() != given.data_ptr()


# --- positions

POSITIONS: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: torch.gather(x, 1, i),
    "index_select": lambda x, i: torch.index_select(x, 1, i[0]),
    "index_add": lambda x, i: x.index_add(1, i[0], torch.ones(2, 2)),
    "index_copy": lambda x, i: x.index_copy(1, i[0], torch.ones(2, 2)),
    "index_fill": lambda x, i: x.index_fill(1, i[0], 2.0),
    "index_put": lambda x, i: x.index_put((torch.tensor(0), i[0]), torch.ones(2)),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x),
    "index_reduce": lambda x, i: x.index_reduce(1, i[0], torch.ones(2, 2), "amax"),
    "scatter": lambda x, i: x.scatter(1, i, 2.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i, torch.ones(1, 2)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i, torch.ones(1, 2), "amax"),
    "nll_loss": lambda x, i: F.nll_loss(x, i[0]),
    "take": lambda x, i: x.take(i),
    "index": lambda x, i: x[:, i],
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i, 1),
}


@TARGETS
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_that_count_from_the_end_are_refused_where_eager_refuses_them(name: str, target: str) -> None:
    function = POSITIONS[name]
    mine, x = compiled(function, target), torch.arange(6.0).reshape(2, 3)
    for places in ([[0, 1]], [[0, -1]], [[1, 7]]):
        index = torch.tensor(places)
        try:
            function(x, index)
        except (RuntimeError, IndexError):
            with pytest.raises((RuntimeError, IndexError)):
                mine(x, index)
        else:
            agree(mine, function, x, index, grad=False)


@TARGETS
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dynamic", [None, True])
def test_transposed_convolutions_that_leave_nothing(dynamic: bool | None, stride: int, target: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, w, padding=2, stride=stride)

    mine = compiled(function, target, dynamic)
    for size in (5, 3, 4):
        agree(mine, function, torch.randn(3, 4, size, 5), torch.randn(4, 2, 2 if stride == 1 else 3 - size % 2, 2))


@TARGETS
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolutions_of_no_pixels(stride: int, target: str) -> None:
    """Eager takes images without pixels if there are none of them."""

    def function(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, w, bias, stride=stride, dilation=2)

    for dynamic in (None, True):
        mine = compiled(function, target, dynamic)
        for shape in ((0, 4, 0, 5), (0, 4, 7, 0)):
            agree(mine, function, torch.randn(shape), torch.randn(4, 2, 3, 2), torch.randn(2))


# --- gradients over an axis of any size

PIECES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "chunk": lambda x: torch.stack([piece.sin().sum() * (at + 1) for at, piece in enumerate(x.chunk(3))]).sum(),
    "split": lambda x: torch.stack([piece.sin().sum() * (at + 1) for at, piece in enumerate(x.split(2))]).sum(),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2).sin().sum(),
}


@TARGETS
@pytest.mark.parametrize("name", PIECES)
def test_gradients_of_pieces_of_a_symbolic_axis(name: str, target: str) -> None:
    function = PIECES[name]
    every = compiled(function, target, dynamic=True)
    for size in (6, 5, 1):
        agree(every, function, torch.randn(size, 4, 3, 3))


@TARGETS
def test_a_mean_over_symbolic_sizes_is_as_exact_as_over_known_ones(target: str) -> None:
    weight, x = torch.randn(8, 3, 3, 3), torch.randn(2, 3, 37, 41) * 10 + 50

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight.to(x.dtype), padding=1).mean((2, 3))

    exact = function(x.double())
    known, symbolic = ((compiled(function, target, dynamic)(x) - exact).abs().max() for dynamic in (False, True))
    assert symbolic <= 2 * known


@TARGETS
@pytest.mark.parametrize(("kernel", "stride"), [(1, 3), (2, 3), (3, 2), (4, 2)])
def test_infinities_stay_where_a_transposed_convolution_puts_them(kernel: int, stride: int, target: str) -> None:
    x, w = torch.randn(1, 2, 3, 3), torch.randn(2, 2, kernel, kernel)
    x[0, 0, 1, 1], x[0, 1, 0, 2] = torch.inf, torch.nan

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, w, stride=stride)

    agree(compiled(function, target), function, x, grad=False)
