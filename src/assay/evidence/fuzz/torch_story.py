"""A program called again and again, by eager or by a compiled function: what each call gave and did."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from assay.evidence.compare.noisy import EdgeCall, NoisyArithmetic, Seeing, is_spread, named_arguments
from assay.evidence.fuzz.torch_plain import BEYOND_MEMORY, PLAIN
from assay.evidence.fuzz.torch_program import RandomProgram, Turn, namespace
from assay.evidence.opinfo.cases import in_f64
from assay.evidence.opinfo.verdicts import CallOutcome
from assay.frontends.torch.private.ops import TorchDispatchMode, pytree
from assay.frontends.torch.types import default_dtype

_torch = cast(Any, torch)
Wrap = Callable[[torch.nn.Module], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One call as the caller sees it. `error` is what it raised, None if it did not; the rest is empty then.

    `strides` are those of outputs, `shared` the pairs of outputs, arguments and state that have memory in common.
    """

    error: Exception | None
    outcome: CallOutcome
    strides: tuple[tuple[int, ...] | None, ...] = ()
    shared: frozenset[tuple[str, str]] = frozenset()


_NOTHING = CallOutcome((), None, (), ())


def eager_story(program: RandomProgram) -> list[Seen]:
    """What eager does, with plain Python for control flow."""
    return _story(program, lambda model: model, PLAIN)


def compiled_story(program: RandomProgram, backend: str, options: dict[str, Any]) -> list[Seen]:
    """What a backend of `torch.compile` does."""
    return _story(program, _compiling(program, backend, options), {})


def traced_story(program: RandomProgram, backend: str) -> list[Seen]:
    """What a backend of torch's own does that runs eager's kernels."""
    return _story(program, _compiling(program, backend), BEYOND_MEMORY)


def _compiling(program: RandomProgram, backend: str, options: dict[str, Any] | None = None) -> Wrap:
    _torch.compiler.reset()
    dynamic = True if program.dynamic else None
    return lambda model: _torch.compile(model, backend=backend, options=options, dynamic=dynamic)


def noisy_story(
    program: RandomProgram, seed: int | None, coarse: torch.dtype | None = None
) -> tuple[list[Seen], list[EdgeCall]]:
    """What eager does if every result of arithmetic and every term of a sum is off by a few units in the last place,
    or with no seed as it is; and the calls of ops with an edge in it. Units are those of a `coarse` dtype, if one is
    given; then arguments and state are off too, as if they had been rounded to it."""
    if seed is None:
        with Seeing() as seeing:
            return _story(program, lambda model: model, PLAIN), seeing.calls
    noise = NoisyArithmetic(seed, coarse)
    with Seeing() as seeing:
        if coarse is None:
            return _story(program, lambda model: model, PLAIN, noise), seeing.calls
        return _changed_story(program, noise.moved, noise), seeing.calls


def rounded_story(program: RandomProgram, coarse: torch.dtype) -> list[Seen]:
    """What eager does if arguments, state and every result are rounded to a coarse dtype."""
    return _changed_story(program, partial(_rounded, coarse), Rounding(coarse))


def wide_story(program: RandomProgram) -> list[Seen]:
    """What eager does in f64. Where the program rounds to another float, it rounds and goes on in f64."""
    with default_dtype(torch.float64):
        return _story(program, lambda model: model.double(), PLAIN, Widening(), given=in_f64)


def scattered_story(program: RandomProgram) -> list[Seen]:
    """What eager does if no two elements of an argument or of the state are neighbours in memory.

    Eager's kernels take several elements at once, and those that are left over one by one. Of NaN both ways may make
    something else, so that what eager gives depends on where an element lies.
    """

    return _changed_story(program, _scattered)


def unfused_story(program: RandomProgram) -> list[Seen]:
    """What eager does if its kernels round between their parts: attention is products and a softmax (of scores that are
    all NaN the fused kernels make zeros), and ops are made as `_PARTS` says."""
    with sdpa_kernel(SDPBackend.MATH):
        return _story(program, lambda model: model, PLAIN, InParts())


class InParts(TorchDispatchMode):
    """Makes the ops of `_PARTS` of their parts."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        parts = _PARTS.get(func.overloadpacket.__name__)
        found = func(*args, **(kwargs or {}))
        return found if parts is None else parts(found, **named_arguments(func, args, kwargs or {}))


def _mean_alone(found: Any, self: Any, dim: Any = None, **_: Any) -> Any:
    """With infinities, what eager gives as the mean beside a variance depends on where they lie."""
    return found[0], self.mean(dim, keepdim=found[1].dim() == self.dim())


def _elu_backward(found: Any, grad_output: Any, scale: float, self_or_result: Any, **_: Any) -> Any:
    """The loop that takes several elements at once makes NaN of NaN, the one for those that are left over takes it for
    positive."""
    return torch.where(self_or_result.isnan(), grad_output * scale, found)


def _cross(found: Any, self: Any, other: Any, dim: int) -> Any:
    """Eager rounds one of two products alone, so that what cancels leaves something."""
    first, second = self.expand(found.shape), other.expand(found.shape)
    return first.roll(-1, dim) * second.roll(-2, dim) - first.roll(-2, dim) * second.roll(-1, dim)


def _addcmul(found: Any, self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    return (self + tensor1 * tensor2 * value).to(found.dtype)


def _median(of: Callable[..., Any], found: Any, self: Any, **along: Any) -> Any:
    """Of a tensor whose elements lie over each other eager reads others than it has."""
    return of(self.contiguous(), **along) if along else found


def _ordered(found: Any, self: Any, k: int | None = None, dim: int = -1, **order: Any) -> Any:
    """Which of equal elements comes first torch leaves open; here it is the one at the lower place."""
    descending = order.get("descending", order.get("largest", False))
    results = self.sort(dim=dim, descending=descending, stable=True)
    return results if k is None or not self.dim() else tuple(each.narrow(dim, 0, k) for each in results)


def _resampled(found: Any, self: Any, output_size: Any, align_corners: bool, **scales: Any) -> Any:
    """Eager adds zero times elements: along an axis that keeps its size, and where a place lies beyond the edge."""
    result = self
    for axis, (size, scale) in enumerate(zip(output_size, scales.values(), strict=True), start=2):
        old = self.shape[axis]
        if size != old:
            lines = result.movedim(axis, -1)
            new = torch.ops.aten.upsample_linear1d(lines.reshape(1, -1, old), [size], align_corners, scale)
            inner = new.reshape(*lines.shape[:-1], size)
            result = (inner if align_corners else _with_edges(inner, lines, scale)).movedim(-1, axis)
    return result.clone(memory_format=torch.preserve_format) if result is self else result


def _with_edges(inner: Any, lines: Any, scale: float | None) -> Any:
    """The outermost elements of lines at places beyond them."""
    old, size = lines.shape[-1], inner.shape[-1]
    places = (torch.arange(size) + 0.5) * (1 / scale if scale else old / size) - 0.5
    return torch.where(places < 0, lines[..., :1], torch.where(places > old - 1, lines[..., -1:], inner))


_PARTS: Mapping[str, Callable[..., Any]] = {
    "var_mean": _mean_alone,
    "std_mean": _mean_alone,
    "elu_backward": _elu_backward,
    "linalg_cross": _cross,
    "addcmul": _addcmul,
    "sort": _ordered,
    "topk": _ordered,
    "median": partial(_median, torch.median),
    "nanmedian": partial(_median, torch.nanmedian),
    "upsample_linear1d": _resampled,
    "upsample_bilinear2d": _resampled,
    "upsample_trilinear3d": _resampled,
}
"""What an op gives if its parts are ops: a function of eager's result and the arguments by name."""


def _scattered(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape, 2))[..., 0].copy_(x)


class Rounding(TorchDispatchMode):
    """Rounds every float that an op gives to a coarse dtype."""

    def __init__(self, coarse: torch.dtype) -> None:
        cast(Any, super()).__init__()
        self._coarse = coarse

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_spread(leaf):
                leaf.copy_(_rounded(self._coarse, leaf))
        return result


def _rounded(coarse: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(coarse).to(x.dtype) if x.is_floating_point() else x


class Widening(TorchFunctionMode):
    """Makes every float that a function returns an f64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, _widened, result)


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() and x.dtype is not torch.float64 else x


def _changed_story(
    program: RandomProgram,
    change: Callable[[torch.Tensor], torch.Tensor],
    mode: AbstractContextManager[Any] | None = None,
) -> list[Seen]:
    """What eager does if the state and every argument are changed first."""

    def wrap(model: torch.nn.Module) -> torch.nn.Module:
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = change(tensor.data)
        return model

    def changed(x: torch.Tensor) -> torch.Tensor:
        return change(x.detach()).requires_grad_(x.requires_grad)

    return _story(program, wrap, PLAIN, mode, lambda arguments: pytree.tree_map_only(torch.Tensor, changed, arguments))


def _story(
    program: RandomProgram,
    wrap: Wrap,
    names: dict[str, Any],
    mode: AbstractContextManager[Any] | None = None,
    given: Callable[[Any], Any] = lambda arguments: arguments,
) -> list[Seen]:
    scope = namespace(program, **names)
    _torch.manual_seed(0)
    with default_dtype(torch.float32):
        scope["model"] = scope["Model"]()
    function = wrap(scope["model"])
    seen: list[Seen] = []
    for position, turn in enumerate(program.turns):
        if not turn.again or position == 0:
            _torch.manual_seed(100 + position)
            with default_dtype(torch.float32):
                scope["given"] = given(scope["arguments"](**turn.sizes))
        with mode or nullcontext(), _quiet():
            seen.append(_call(program, scope, function))
        if not _continued(turn, scope):
            break
    return seen


def _call(program: RandomProgram, scope: dict[str, Any], function: Callable[..., Any]) -> Seen:
    """One call, with gradients where the program asks for them."""
    model, arguments = scope["model"], scope["given"]
    _clear_gradients([*arguments, *model.parameters()])
    scope["results"] = []
    _torch.manual_seed(1)
    try:
        with torch.set_grad_enabled(program.grad):
            results = function(*arguments)
        leaves, structure = pytree.tree_flatten(results)
        scope["results"] = leaves
        strides = tuple(tuple(leaf.stride()) if isinstance(leaf, torch.Tensor) else None for leaf in leaves)
        shared = shared_memory(leaves, arguments, model)
        outputs = [_copied(leaf) for leaf in leaves]
        state = [*arguments, *(value for _, value in sorted(model.state_dict().items()))]
        after = [_copied(value) for value in state]
        gradients = _gradients(leaves, [*arguments, *model.parameters()]) if program.grad else []
    except Exception as error:
        return Seen(error, _NOTHING)
    return Seen(None, CallOutcome(outputs, structure, after, gradients), strides, shared)


def _continued(turn: Turn, scope: dict[str, Any]) -> bool:
    """Do what the caller does after a call; False if something there cannot be gone on from."""
    for statement in turn.after:
        with _quiet():
            try:
                exec(statement, scope)
            except Exception:  # a write that torch refuses is refused for everyone, or the next call tells
                continue
    return "model" in scope


def _copied(value: Any) -> Any:
    """A value as it is now, safe from what is done to it later."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone()
    return copy.requires_grad_() if value.requires_grad else copy


def _clear_gradients(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf:
            leaf.grad = None


def _gradients(results: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    tops: list[torch.Tensor] = [each for each in results if isinstance(each, torch.Tensor) and each.requires_grad]
    if tops:
        torch.autograd.backward(tops, [_direction(top) for top in tops])
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_leaf]
    return [None if leaf.grad is None else leaf.grad.detach().clone() for leaf in tensors]


def _direction(top: torch.Tensor) -> torch.Tensor:
    """A tensor like `top`, the same for the same shape."""
    steps = torch.arange(top.numel(), dtype=torch.float64).mul(0.7).cos().add(0.25).reshape(top.shape)
    return steps.to(top.dtype)


# --- memory


def shared_memory(
    results: Sequence[Any], arguments: Sequence[Any], model: torch.nn.Module | None = None
) -> frozenset[tuple[str, str]]:
    """Which results have memory in common with each other, with arguments or with a model's state."""
    named = [(f"output {i}", each) for i, each in enumerate(results)]
    named += [(f"argument {i}", each) for i, each in enumerate(arguments)]
    state: dict[str, Any] = {} if model is None else model.state_dict(keep_vars=True)
    named += [(f"state {name}", each) for name, each in state.items()]
    places = [(name, _addresses(each)) for name, each in named if isinstance(each, torch.Tensor)]
    return frozenset(
        (first, second)
        for at, (first, mine) in enumerate(places)
        for second, theirs in places[at + 1 :]
        if first.startswith("output") and np.intersect1d(mine, theirs).size
    )


def _addresses(tensor: torch.Tensor) -> Any:
    """The address of every element."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return np.zeros(0, np.int64)
    found = np.zeros((), np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        found = found[..., None] + np.arange(size) * (stride * tensor.element_size())
    return np.unique(found + tensor.data_ptr())


@contextmanager
def _quiet() -> Generator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
