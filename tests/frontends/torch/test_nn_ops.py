"""Neural-network ops through `torch.compile(backend="assay")`: results and gradients as eager has them."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils import _pytree as pytree

from assay.evidence.fuzz.torch_plain import PLAIN
from assay.frontends.torch.decompositions import (
    MAGNIFYING,
    RANDOM,
    RESAMPLING,
    decompositions,
    kept_whole,
    wide_gradients,
)
from assay.frontends.torch.registry import entered

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def results(function: Function, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor | None]:
    """What a function gives, and the gradients of fresh inputs for fixed gradients of its results."""
    own = [each.detach().clone().requires_grad_(each.requires_grad) for each in inputs]
    found = tensors(function(*own))
    wanted = [each for each in own if each.requires_grad]
    differentiable = [each for each in found if each.requires_grad]
    if not wanted or not differentiable:
        return [*found]
    generator = torch.Generator().manual_seed(1)
    pulls = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in differentiable]
    return [*found, *torch.autograd.grad(differentiable, wanted, pulls, allow_unused=True)]


def agree(function: Function, *inputs: torch.Tensor, **options: Any) -> None:
    compiled = torch.compile(function, backend="assay", options={"strict": True}, **options)
    for mine, theirs in zip(results(compiled, inputs), results(function, inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, check_stride=False)


CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    # normalizations
    "layer_norm": (lambda a, w, c: F.layer_norm(a, (3, 4), w, c), (x(2, 3, 4), x(3, 4), x(3, 4))),
    "rms_norm": (lambda a, w: F.rms_norm(a, (4,), w), (x(2, 3, 4), x(4))),
    "group_norm": (lambda a, w, c: F.group_norm(a, 2, w, c), (x(2, 4, 3, 2), x(4), x(4))),
    "instance_norm": (lambda a: F.instance_norm(a), (x(2, 3, 4, 4),)),
    "batch_norm trains": (
        lambda a, w, c: F.batch_norm(a, None, None, w, c, training=True),
        (x(4, 3, 5), x(3), x(3)),
    ),
    "batch_norm infers": (
        lambda a, w, c: F.batch_norm(a, torch.zeros(3), torch.ones(3), w, c),
        (x(4, 3, 5), x(3), x(3)),
    ),
    "softmax of a scalar": (lambda a: F.softmax(a, 0), (x(),)),
    # convolutions
    "conv1d": (lambda a, w, c: F.conv1d(a, w, c, stride=3, padding=1, dilation=2), (x(2, 4, 15), x(6, 4, 3), x(6))),
    "conv2d in groups": (
        lambda a, w, c: F.conv2d(a, w, c, stride=(2, 1), padding=(0, 2), groups=2),
        (x(2, 4, 8, 7), x(6, 2, 3, 2), x(6)),
    ),
    "conv3d": (lambda a, w: F.conv3d(a, w, stride=2), (x(1, 2, 5, 4, 6), x(3, 2, 2, 2, 3))),
    "conv2d unbatched": (lambda a, w: F.conv2d(a, w, padding=1), (x(2, 5, 5), x(3, 2, 3, 3))),
    "conv_transpose2d": (
        lambda a, w, c: F.conv_transpose2d(a, w, c, stride=(2, 3), padding=1, output_padding=(1, 2), groups=2),
        (x(2, 4, 3, 4), x(4, 3, 3, 3), x(6)),
    ),
    "conv_transpose1d padded beyond its stride": (
        lambda a, w: F.conv_transpose1d(a, w, stride=1, output_padding=1, dilation=2),
        (x(2, 3, 5), x(3, 2, 3)),
    ),
    "unfold": (lambda a: F.unfold(a, (2, 3), dilation=(1, 2), padding=1, stride=2), (x(2, 3, 6, 8),)),
    "fold": (lambda a: F.fold(a, (5, 4), (2, 2), padding=1, stride=2), (x(2, 8, 9),)),
    # poolings
    "max_pool2d": (
        lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True, return_indices=True),
        (x(2, 3, 8, 7),),
    ),
    "max_pool1d": (lambda a: F.max_pool1d(a, 2, dilation=2), (x(3, 9),)),
    "max_pool3d": (lambda a: F.max_pool3d(a, 2), (x(1, 2, 4, 5, 6),)),
    "avg_pool2d": (lambda a: F.avg_pool2d(a, (3, 2), 2, (1, 0), ceil_mode=True), (x(2, 3, 7, 8),)),
    "avg_pool2d of what is there": (lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (x(3, 7, 8),)),
    "avg_pool2d by a divisor": (
        lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, divisor_override=5),
        (x(2, 3, 8, 7),),
    ),
    "avg_pool3d": (lambda a: F.avg_pool3d(a, 2), (x(1, 2, 4, 5, 6),)),
    "adaptive_avg_pool2d to one": (lambda a: F.adaptive_avg_pool2d(a, 1), (x(2, 3, 5, 4),)),
    "adaptive_avg_pool2d evenly": (lambda a: F.adaptive_avg_pool2d(a, (3, 2)), (x(2, 3, 6, 4),)),
    "adaptive_avg_pool2d unevenly": (lambda a: F.adaptive_avg_pool2d(a, (3, 5)), (x(2, 3, 7, 4),)),
    "adaptive_avg_pool3d": (lambda a: F.adaptive_avg_pool3d(a, (2, 3, 2)), (x(2, 3, 5, 4, 3),)),
    "adaptive_max_pool2d": (
        lambda a: F.adaptive_max_pool2d(a, (3, 2), return_indices=True),
        (x(2, 3, 7, 5),),
    ),
    "adaptive_max_pool3d": (lambda a: F.adaptive_max_pool3d(a, (2, 3, 2)), (x(3, 5, 4, 3),)),
    "fractional_max_pool2d": (
        lambda a, s: F.fractional_max_pool2d(a, 2, (3, 4), _random_samples=s, return_indices=True),
        (x(2, 3, 7, 9), torch.rand(2, 3, 2)),
    ),
    "fractional_max_pool3d": (
        lambda a, s: F.fractional_max_pool3d(a, 2, (3, 1, 2), _random_samples=s),
        (x(2, 3, 7, 5, 4), torch.rand(2, 3, 3)),
    ),
    # attention
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (x(2, 3, 4, 8), x(2, 3, 6, 8), x(2, 3, 6, 8)),
    ),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (x(2, 3, 5, 8), x(2, 3, 5, 8), x(2, 3, 5, 8)),
    ),
    "attention to nothing": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (x(1, 2, 3, 4), torch.tensor([[True, False, True], [False] * 3, [True] * 3])),
    ),
    # embeddings and distances
    "embedding": (lambda w, i: F.embedding(i, w, padding_idx=1), (x(5, 3), torch.tensor([[1, 4], [4, 0]]))),
    "a bag's sum": (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        (x(6, 3), torch.tensor([1, 5, 5, 0, 2]), torch.tensor([0, 2, 2]), x(5)),
    ),
    "a bag's mean": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="mean", padding_idx=5, include_last_offset=True),
        (x(6, 3), torch.tensor([1, 5, 5, 0, 2]), torch.tensor([0, 2, 3, 5])),
    ),
    "a bag's largest": (
        lambda w, i, o: F.embedding_bag(i, w, o, mode="max"),
        (x(6, 3), torch.tensor([1, 5, 5, 0, 2]), torch.tensor([0, 2, 2])),
    ),
    "cdist": (lambda a, c: torch.cdist(a, c), (x(2, 4, 3), x(5, 3))),
    "cdist of many": (lambda a, c: torch.cdist(a, c), (x(30, 3), x(4, 3))),
    "cdist, p = 1.5": (lambda a, c: torch.cdist(a, c, p=1.5), (x(4, 3), x(5, 3))),
    "cdist, p = ∞": (lambda a, c: torch.cdist(a, c, p=math.inf), (x(4, 3), x(5, 3))),
    "pdist": (lambda a: F.pdist(a, p=3.0), (x(5, 3),)),
    "bilinear": (lambda a, c, w: F.bilinear(a, c, w), (x(4, 3), x(4, 2), x(5, 3, 2))),
    # resampling
    "nearest": (lambda a: F.interpolate(a, size=(7, 5), mode="nearest"), (x(2, 3, 3, 4),)),
    "nearest by scale": (lambda a: F.interpolate(a, scale_factor=2.0), (x(2, 3, 3, 4),)),
    "nearest-exact": (lambda a: F.interpolate(a, scale_factor=1.7, mode="nearest-exact"), (x(2, 3, 5),)),
    "linear": (lambda a: F.interpolate(a, scale_factor=0.7, mode="linear"), (x(2, 3, 9),)),
    "bilinear by corners": (
        lambda a: F.interpolate(a, size=(5, 9), mode="bilinear", align_corners=True),
        (x(2, 3, 4, 4),),
    ),
    "bicubic": (lambda a: F.interpolate(a, scale_factor=(1.5, 0.6), mode="bicubic"), (x(2, 3, 6, 8),)),
    "trilinear": (lambda a: F.interpolate(a, size=(3, 5, 2), mode="trilinear"), (x(1, 2, 4, 3, 5),)),
    "bilinear, smooth": (
        lambda a: F.interpolate(a, size=(3, 9), mode="bilinear", antialias=True),
        (x(2, 3, 8, 7),),
    ),
    "bicubic, smooth": (lambda a: F.interpolate(a, size=(4, 4), mode="bicubic", antialias=True), (x(2, 3, 9, 7),)),
    "replication_pad": (lambda a: F.pad(a, (2, 1, 0, 3), mode="replicate"), (x(2, 3, 4, 5),)),
    "reflection_pad": (lambda a: F.pad(a, (2, 1, 0, 3), mode="reflect"), (x(2, 3, 4, 5),)),
    # losses
    "cross_entropy": (
        lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1, ignore_index=2),
        (x(4, 5), torch.tensor([0, 2, 4, 1])),
    ),
    "nll_loss of images": (
        lambda a, t: F.nll_loss(F.log_softmax(a, 1), t),
        (x(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))),
    ),
    "smooth_l1_loss": (lambda a, c: F.smooth_l1_loss(a, c), (x(4, 3), x(4, 3))),
    "multi_margin_loss": (lambda a, t: F.multi_margin_loss(a, t), (x(4, 5), torch.tensor([0, 2, 4, 1]))),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_agree_with_eager(name: str) -> None:
    function, inputs = CASES[name]
    agree(function, *inputs)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("scales", [(1.1,), (1.1, 0.95), (0.99, 1.1), (1.1, 1.1, 1.9)], ids=str)
def test_axes_that_keep_their_sizes_are_copied_whatever_the_scale(
    scales: tuple[float, ...], dynamic: bool, target: str
) -> None:
    mode = ("linear", "bilinear", "trilinear")[len(scales) - 1]

    def resampled(a: torch.Tensor) -> torch.Tensor:
        return F.interpolate(a, scale_factor=list(scales), mode=mode)

    compiled = torch.compile(resampled, backend="assay", dynamic=dynamic, options={"target": target})
    for size in (5, 12) if dynamic else (5,):
        for grad in (False, True):
            a = torch.randn(2, 1, *(size + i for i in range(len(scales)))).requires_grad_(grad)
            expected = resampled(a)
            assert not (size == 5 and scales == (1.1,)) or torch.equal(expected, a)
            torch.testing.assert_close(compiled(a), expected)
            if grad:
                weights = torch.randn_like(expected)
                torch.testing.assert_close(
                    torch.autograd.grad(compiled(a), a, weights), torch.autograd.grad(expected, a, weights)
                )


GRIDS = [
    (m, p, a) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection") for a in (0, 1)
]


@pytest.mark.parametrize(("mode", "padding", "align"), GRIDS)
def test_sampling_at_a_grid_agrees_with_eager(mode: str, padding: str, align: int) -> None:
    def sample(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=bool(align))

    grid = (torch.rand(2, 3, 5, 2) * 3 - 1.5).requires_grad_()
    agree(sample, x(2, 3, 4, 6), grid)


def test_sampling_in_three_dimensions_agrees_with_eager() -> None:
    grid = (torch.rand(2, 3, 2, 4, 3) * 3 - 1.5).requires_grad_()
    agree(lambda image, where: F.grid_sample(image, where, align_corners=False), x(2, 2, 3, 4, 5), grid)


ACTIVATIONS = [
    F.gelu, F.silu, F.elu, F.celu, F.selu, F.mish, F.hardswish, F.hardsigmoid, F.hardtanh, F.leaky_relu, F.softplus,
    F.logsigmoid, F.tanhshrink, F.softshrink, F.hardshrink, F.relu6, F.softsign, F.glu, F.softmax,
]  # fmt: skip


@pytest.mark.parametrize("function", ACTIVATIONS, ids=lambda function: function.__name__)
def test_activations_agree_with_eager(function: Function) -> None:
    extra = {"dim": -1} if function in (F.softmax, F.glu) else {}
    agree(lambda a: function(a, **extra), x(5, 6))


_READ_NEARBY = ("avg_pool", "nearest", "linear", "bicubic", "replication")
LOCAL = [name for name, (_, given) in CASES.items() if len(given) == 1 and any(part in name for part in _READ_NEARBY)]
"""Each element of the result is made of a few neighbours."""


_FAILS_IN_TORCH = ("bicubic, smooth", True)
"""An internal assertion of torch, before a backend is asked."""


@pytest.mark.parametrize(
    ("name", "dynamic"), [each for each in itertools.product(LOCAL, (False, True)) if each != _FAILS_IN_TORCH]
)
def test_gradients_reach_no_farther_than_the_elements_that_were_read(name: str, dynamic: bool) -> None:
    """What is infinite or NaN in one place of the result is not felt in others.

    Some torch takes apart before a backend sees them, others where sizes are symbolic; then its own parts are asked.
    """
    function, (image,) = CASES[name]

    def gradient(call: Any) -> torch.Tensor:
        given = image.detach().clone().requires_grad_()
        result = call(given)
        incoming = torch.ones_like(result).flatten()
        for place, odd in ((0, float("inf")), (len(incoming) // 2, float("nan")), (-1, -float("inf"))):
            incoming[place] = odd
        return torch.autograd.grad(result, given, incoming.view_as(result))[0]

    compiled = torch.compile(function, backend="assay", options={"strict": True}, dynamic=dynamic or None)
    taken_apart = torch.compile(function, backend="aot_eager_decomp_partition", dynamic=dynamic or None)
    found, expected = gradient(compiled), gradient(function)
    if not torch.equal(found.isnan(), expected.isnan()):
        expected = gradient(taken_apart)
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3), (4, 4), (3, 2, 2), (3, 3, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_that_lie_in_the_padding_have_no_gradient(sizes: tuple[int, ...], dynamic: bool) -> None:
    """Beside plain Python: eager writes those of some to the next line, and those of others beyond its memory."""
    image, stride = torch.randn(2, 2, *sizes), 1
    pool = {2: F.max_pool2d, 3: F.max_pool3d}[len(sizes)]

    def gradient(call: Any) -> torch.Tensor:
        given = image.clone().requires_grad_()
        result = call(given)
        return torch.autograd.grad(result, given, torch.arange(1.0, result.numel() + 1).view_as(result))[0]

    compiled = torch.compile(lambda a: pool(a, 2, stride, 1, 3), backend="assay", dynamic=dynamic or None)
    expected = gradient(lambda a: PLAIN["stepping_pool"](a, 3, stride))
    torch.testing.assert_close(gradient(compiled), expected)


HALVES = ("layer_norm", "group_norm", "avg_pool2d", "adaptive_avg_pool2d unevenly", "attention", "bilinear by corners")


@pytest.mark.parametrize("name", HALVES)
def test_halves_are_computed_wide_and_rounded_once(name: str) -> None:
    function, inputs = CASES[name]
    narrow = [each.detach().bfloat16().requires_grad_() for each in inputs]
    compiled = torch.compile(function, backend="assay", options={"strict": True})
    for mine, theirs in zip(results(compiled, (*narrow,)), results(function, (*narrow,)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1.6e-2, atol=1e-2, check_stride=False)


DYNAMIC = {
    "conv2d": (lambda a, w: F.conv2d(a, w, stride=2, padding=1), ((2, 3, 7, 8), (5, 3, 9, 6)), x(4, 3, 3, 3)),
    "max_pool2d": (lambda a, w: F.max_pool2d(a, 3, 2, 1) * w, ((2, 3, 7, 8), (5, 3, 9, 6)), x(1)),
    "avg_pool2d": (lambda a, w: F.avg_pool2d(a, 3, 2, 1) * w, ((2, 3, 7, 8), (5, 3, 9, 6)), x(1)),
    "adaptive_avg_pool2d": (lambda a, w: F.adaptive_avg_pool2d(a, (2, 3)) * w, ((2, 3, 7, 8), (5, 3, 9, 6)), x(1)),
    "group_norm": (lambda a, w: F.group_norm(a, 2, w), ((2, 4, 7), (5, 4, 9)), x(4)),
    "attention": (
        lambda a, w: F.scaled_dot_product_attention(a, a * w, a, is_causal=True),
        ((3, 2, 5, 8), (4, 2, 9, 8)),
        x(1),
    ),
    "interpolate": (
        lambda a, w: F.interpolate(a, scale_factor=2.0, mode="bilinear") * w,
        ((2, 3, 7, 8), (5, 3, 9, 6)),
        x(1),
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_one_graph_trains_at_every_size(name: str) -> None:
    function, shapes, weight = DYNAMIC[name]
    compiled = torch.compile(function, backend="assay", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape in shapes:
            given = (x(*shape), weight)
            for mine, theirs in zip(results(compiled, given), results(function, given), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, check_stride=False)


# --- models


class Images(nn.Module):
    """Convolutions, both ways and in groups, with their usual normalizations and poolings."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4)
        self.group_norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)
        self.last = nn.Linear(4, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        found = F.max_pool2d(F.relu(self.norm(self.first(image))), 2)
        found = self.up(F.silu(self.group_norm(self.grouped(found))))
        found = F.avg_pool2d(F.interpolate(found, scale_factor=2.0, mode="bilinear"), 3, 2, 1)
        return self.last(F.adaptive_avg_pool2d(found, 1).flatten(1))


class Words(nn.Module):
    """An encoder over words that looks back only."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.last = nn.Linear(16, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.last(self.layer(self.words(words), src_mask=mask, is_causal=True))[:, -1]


class Sounds(nn.Module):
    """Recurrent layers over time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 7, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(14, 5, batch_first=True)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        return self.gru(self.lstm(sound)[0])[0][:, -1]


def image_batches() -> Iterator[torch.Tensor]:
    yield from (torch.randn(4, 3, 16, 20) for _ in range(3))


def word_batches() -> Iterator[torch.Tensor]:
    yield from (torch.randint(0, 11, (4, 6)) for _ in range(3))


def sound_batches() -> Iterator[torch.Tensor]:
    yield from (torch.randn(4, 5, 6) for _ in range(2))


@pytest.mark.parametrize(
    ("model", "batches"), [(Images, image_batches), (Words, word_batches), (Sounds, sound_batches)]
)
def test_training_steps_agree_with_eagers_own(model: type[nn.Module], batches: Function) -> None:
    """Two copies take the same steps; gradients, weights and running statistics stay the same."""
    theirs = model()
    ours = copy.deepcopy(theirs)
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(ours, backend="assay", options={"strict": True})
        optimizers = [torch.optim.SGD(each.parameters(), 0.05, momentum=0.9) for each in (theirs, ours)]
        for batch in batches():
            labels = torch.randint(0, 5, (len(batch),))
            for each, optimizer in zip((theirs, compiled), optimizers, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(each(batch), labels).backward()
            for (name, mine), expected in zip(ours.named_parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(
                    mine.grad, expected.grad, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
                )
            for optimizer in optimizers:
                optimizer.step()
    for mine, expected in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-5)


def test_an_lstm_layer_is_whole_where_no_gradient_is_wanted() -> None:
    model, sound = Sounds().eval(), torch.randn(3, 12, 6)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend="assay", options={"strict": True})
        torch.testing.assert_close(compiled(sound), model(sound), rtol=1e-4, atol=1e-5)


# --- what is taken apart


def test_no_op_is_both_taken_apart_and_lowered() -> None:
    """A lowering of an op that never arrives would be dead."""
    apart = {str(op) for op in decompositions()}
    whole = [name for name in entered() if name.startswith(("aten.upsample", "aten._upsample", "aten.native_"))]
    assert not apart & set(whole)


def test_what_draws_random_numbers_stays_whole() -> None:
    names = {str(op).split(".")[1] for op in decompositions()}
    assert not names & set(RANDOM)


def test_resampling_is_whole_only_inside() -> None:
    packets = [getattr(torch.ops.aten, name) for name in RESAMPLING]
    overloads = [getattr(packet, name) for packet in packets for name in packet.overloads()]
    before = [dict(each.py_kernels) for each in overloads]
    with kept_whole():
        assert not any(each.py_kernels for each in overloads if each._overloadname == "default")
    assert [dict(each.py_kernels) for each in overloads] == before


def test_gradients_are_wide_only_inside() -> None:
    overloads = [getattr(torch.ops.aten, name).default for name in MAGNIFYING]
    before = [dict(each.py_kernels) for each in overloads]
    with wide_gradients():
        assert all(torch._C.DispatchKey.Autograd in each.py_kernels for each in overloads)
    assert [dict(each.py_kernels) for each in overloads] == before


def test_gradients_of_attention_with_large_scores_are_as_exact_as_f32_allows() -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v, grad = (6 * torch.randn(2, 3, 5, 8, generator=generator) for _ in range(4))

    def gradients(attend: Any, dtype: torch.dtype) -> list[torch.Tensor]:
        inputs = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
        attend(*inputs).backward(grad.to(dtype))
        return [x.grad.double() for x in inputs if x.grad is not None]

    attend = torch.nn.functional.scaled_dot_product_attention
    right = gradients(attend, torch.float64)
    for mine, theirs in zip(gradients(torch.compile(attend, backend="assay"), torch.float32), right, strict=True):
        assert (mine - theirs).abs().max() <= 2e-7 * theirs.abs().max()


def test_distances_of_few_and_of_many_rows_are_infinite_where_those_of_eager_are(target_name: str) -> None:
    """Of up to 25 rows eager takes differences, of more it takes products, of which infinities make NaN."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x: torch.cdist(x, x + 1), backend="assay", options={"target": target_name}, dynamic=True
    )
    for count in (4, 25, 26, 40, 7):
        rows = torch.randn(count, 4)
        rows[0, 1], rows[2, 3] = math.inf, -math.inf
        found, eager = compiled(rows), torch.cdist(rows, rows + 1)
        assert torch.equal(found.isnan(), eager.isnan()), count
        assert torch.equal(found.isinf(), eager.isinf()), count
