"""What a declared model is: how it is made in two sizes, what it is called with, and how its weights are filled."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from assay.errors import NotFound
from assay.frontends.torch.private.ops import pytree
from assay.frontends.torch.types import default_dtype
from assay.needs import explained

Size = Literal["small", "full"]
Mode = Literal["eval", "train"]
Shape = tuple[int, ...]
Inputs = dict[str, Tensor]
Values = Callable[[Any, Shape, torch.Generator], Tensor]
"""What an input of a shape holds; the module tells what it takes, such as how many tokens it knows."""

BOTH: tuple[Mode, ...] = ("eval", "train")

_QUERY = 0.125
"""1/√64, as 64 is the usual size of a head."""
_BLOCK = (1 << 20) + 7
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Larger parameters repeat this many random numbers, as drawing each of some billions takes minutes."""


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of a model: what it holds, its shape in the full call, and in a small one of a length."""

    values: Values
    full: Shape
    small: Callable[[int], Shape]


@dataclass(frozen=True, slots=True)
class Task:
    """What a trained model is for."""

    questions: Callable[[], Sequence[Inputs]]
    """Inputs whose right answers are known."""
    score: Callable[[Sequence[Any]], dict[str, float]]
    """From the model's answers, in the order of the questions, to figures of how right they are."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a model was trained to, which a package carries, and what it is good for with that."""

    load: Callable[[Any], None]
    """Loads the weights into a full module; NotFound if the package is not installed."""
    task: Task


def mean_square(outputs: Any) -> Tensor:
    """The mean over all floating outputs of each one's mean square."""
    leaves = pytree.tree_leaves(outputs)
    floats = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return torch.stack([each.float().square().mean() for each in floats]).mean()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model: how it is made, in which sizes, and what it is called with."""

    name: str
    library: str
    family: str
    constructor: str
    """What the library calls it: a class, a function or a file."""
    make: Callable[[Mapping[str, Any]], Any]
    """From settings to a module."""
    small: Mapping[str, Any]
    """Settings of the same network with fewer and narrower layers."""
    full: Mapping[str, Any]
    """Settings of the network as it is known."""
    inputs: Mapping[str, Input]
    """Keyword inputs by their name."""
    lengths: tuple[int, ...]
    """Lengths (of text, of sound, of an image's side) that the small variant takes; the last is the usual one."""
    count: int
    """Parameters of the full variant."""
    aliases: tuple[str, ...] = ()
    full_dtype: Literal["f32", "bf16"] = "f32"
    modes: tuple[Mode, ...] = BOTH
    train_batch: int = 0
    """The batch of the full call in training, where it is another than in eval mode."""
    loss: Callable[[Any], Tensor] = mean_square
    """From outputs to what training makes smaller."""
    comparable: Callable[[Any], Any] = lambda outputs: outputs
    """From outputs to the same in a form in which rounding does not decide the order of anything."""
    weights: Trained | None = None
    """What the full variant was trained to, where a package carries that."""
    unscaled: str = "no such weight"
    """How the names of query projections end whose attention divides by no √size: their weights must do that."""
    unavailable: str = ""
    """Why the model cannot be had; empty if it can."""
    note: str = ""
    """What a reader of its figures should know."""

    def settings(self, size: Size) -> Mapping[str, Any]:
        """What the constructor gets."""
        return self.small if size == "small" else self.full

    def build(self, size: Size = "small", seed: int = 0) -> Any:
        """The module in eval mode; equal arguments give equal weights."""
        module = self.empty(size).eval()
        fill(module, seed, self.unscaled)
        settle(module, self.example(module, size=size))
        return module

    def trained(self) -> Any:
        """The full module in eval mode with the weights that it was trained to."""
        if self.weights is None:
            raise NotFound(f"no package carries weights of '{self.name}'", hint="`build` gives it random ones")
        module = self.empty("full").eval()
        self.weights.load(module)
        return module

    def empty(self, size: Size) -> Any:
        """The module with parameters of no meaning; its buffers are right."""
        wanted = torch.bfloat16 if size == "full" and self.full_dtype == "bf16" else torch.float32
        with explained(), default_dtype(wanted), without_initial_weights():
            return self.make(self.settings(size))

    def parameters(self, size: Size) -> int:
        """How many numbers are learned."""
        if size == "full":
            return self.count
        return sum(parameter.numel() for parameter in self.empty(size).parameters())

    def shapes(self, size: Size = "small", length: int | None = None, mode: Mode = "eval") -> dict[str, Shape]:
        """The shape of each input; a length counts for the small variant alone, the full call has one."""
        if size == "small":
            return {name: each.small(length or self.lengths[-1]) for name, each in self.inputs.items()}
        batch = self.train_batch if mode == "train" else 0
        return {name: (batch, *each.full[1:]) if batch else each.full for name, each in self.inputs.items()}

    def example(
        self, module: Any, length: int | None = None, seed: int = 0, size: Size = "small", mode: Mode = "eval"
    ) -> Inputs:
        """Inputs for a module of that size; equal arguments give equal inputs."""
        generator = torch.Generator().manual_seed(seed)
        shapes = self.shapes(size, length, mode)
        return {name: self.inputs[name].values(module, shape, generator) for name, shape in shapes.items()}


# --- values of inputs


def noise(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=generator)


def pixels(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """Even numbers from 0 to 1."""
    return torch.rand(shape, generator=generator)


def ones(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """A mask that hides nothing."""
    return torch.ones(shape, dtype=torch.int64)


def zeros(module: Any, shape: Shape, generator: torch.Generator) -> Tensor:
    """Integers of which all are 0."""
    return torch.zeros(shape, dtype=torch.int64)


def image(side: int, values: Values = noise, channels: int = 3, small: int = 2) -> Input:
    """One square image; `small` of them in a small call, as batch norms want more than one when they train."""
    return Input(values, (1, channels, side, side), lambda length: (small, channels, length, length))


# --- weights


@contextmanager
def without_initial_weights() -> Generator[None]:
    """Inside, the functions of `torch.nn.init` that draw numbers do nothing: what they draw is written over anyway."""
    names = [name for name in vars(nn.init) if re.fullmatch(r"(\w*normal|\w*uniform|orthogonal|sparse)_", name)]
    usual = {name: getattr(nn.init, name) for name in names}
    try:
        for name in names:
            setattr(nn.init, name, _left_alone)
        yield
    finally:
        for name, function in usual.items():
            setattr(nn.init, name, function)


def _left_alone(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return tensor


@torch.no_grad()
def fill(module: nn.Module, seed: int, unscaled: str) -> None:
    """Random parameters that keep a signal's size: matrices by their fan-in, scales near 1, biases near 0.

    Unlike the usual initial weights these make outputs differ clearly, so that a choice of the largest is not a tie.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            spread = (parameter.shape[0] / parameter.numel()) ** 0.5 * (_QUERY if name.endswith(unscaled) else 1.0)
            _normal(parameter, 0.0, spread, generator)
        else:
            _normal(parameter, 1.0 if name.endswith("weight") else 0.0, 0.1, generator)


def _normal(parameter: Tensor, mean: float, spread: float, generator: torch.Generator) -> None:
    if parameter.numel() <= _BLOCK:
        parameter.normal_(mean, spread, generator=generator)
        return
    block = torch.empty(_BLOCK, dtype=parameter.dtype).normal_(mean, spread, generator=generator)
    flat = parameter.view(-1)
    whole = flat.numel() // _BLOCK * _BLOCK
    flat[:whole].view(-1, _BLOCK).copy_(block)
    flat[whole:].copy_(block[: flat.numel() - whole])


@torch.no_grad()
def settle(module: nn.Module, inputs: Inputs) -> None:
    """Batch norms in eval mode that scale as if they were trained: by the size of what they get in one call.

    Without that a signal fades from layer to layer, until outputs hardly depend on inputs. The sizes are rounded to
    powers of two, so that they do not depend on the order in which a machine adds.
    """
    norms = [each for each in module.modules() if isinstance(each, _BATCH_NORMS)]
    if not norms:
        return
    hooks = [each.register_forward_pre_hook(_settle) for each in norms]
    random = cast(Any, torch.random)
    with random.fork_rng(devices=[]):
        random.manual_seed(0)
        module(**inputs)
    for hook in hooks:
        hook.remove()


def _settle(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    variance = inputs[0].square().mean().clamp(min=2.0**-20)
    cast(Tensor, norm.running_var).fill_(variance.log2().round().exp2())
