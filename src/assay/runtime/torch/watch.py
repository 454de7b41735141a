"""A torch model run through the backend while somebody looks: graphs, graph breaks, guards that failed.

The run has a compile cache of its own (`isolate_recompiles`), and torch's notes on dynamic sizes are put aside for it:
models that the user compiled keep their compiled code and are compiled no more often than without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from types import CodeType
from typing import Any, NamedTuple, Protocol, cast

import torch

from assay.errors import AssayError, BadFeed
from assay.frontends.torch.private.dynamo import BackendCompilerFailed, own_region
from assay.frontends.torch.private.ops import pytree, version_of
from assay.ir.graph import Node
from assay.runtime.torch.backend import Options, backend
from assay.runtime.torch.graphs import CompiledGraph, observing, recording
from assay.targets.base import Event, Observer


class CallArguments(NamedTuple):
    """What one call of the model is given."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Break:
    """A place where torch left a graph: the user's line and torch's own words."""

    file: str
    line: int
    code: str
    message: str
    left: str = ""
    """The function that runs eagerly as a whole for it; empty where torch compiles what is before and behind."""


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """A guard of an earlier compilation that did not hold, so that `function` was compiled once more in call `call`."""

    call: int
    compilation: str
    function: str
    file: str
    line: int
    guard: str


@dataclass(slots=True)
class Watched:
    """What came to light while a model ran. `calls` says for each graph in which call it was compiled."""

    target: str
    graphs: list[CompiledGraph] = field(default_factory=list[CompiledGraph])
    calls: list[int] = field(default_factory=list[int])
    breaks: list[Break] = field(default_factory=list[Break])
    failures: list[GuardFailure] = field(default_factory=list[GuardFailure])
    given_up: set[str] = field(default_factory=set[str])
    """Compilations that came to nothing, as a rule because there were too many: the function runs eagerly."""
    late: dict[Node, str] = field(default_factory=dict[Node, str])
    """Nodes that were lowered when the program ran and had to go to torch then, with the reason."""
    call: int = 0

    def note(self, event: Event) -> None:
        """An observer: what was lowered late to an opaque op runs within the node that had waited."""
        node = event.node
        if node.op == "opaque":
            self._opaque = node
        elif node.op == "deferred" and self._opaque is not None and self._opaque.origin == node.origin:
            self.late[node] = self._opaque.attrs["reason"]

    _opaque: Node | None = None


class ModelCall(Protocol):
    """How a watched model is called; gives what it returns. `observer` is called for every node that runs.

    With `fused`, nodes are not observed: targets run whole segments, and what is lowered late is not noted.
    """

    def __call__(self, arguments: CallArguments, observer: Observer | None = None, *, fused: bool = False) -> Any: ...


class Differentiate(Protocol):
    """What runs the backward graphs of what a model returned; `wanted` says that there must be some."""

    def __call__(self, outcome: Any, wanted: bool) -> None: ...


def as_calls(calls: Sequence[Any] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[CallArguments]:
    """The calls to make: the arguments given, or each entry of `calls`: a tuple of arguments, or one argument."""
    if calls is None:
        return [CallArguments(args, kwargs)]
    if args or kwargs:
        raise BadFeed("both arguments and `calls` were given", hint="put all arguments into `calls`")
    if not calls:
        raise BadFeed("`calls` is empty", hint="give one tuple of arguments for each call")
    return [each if isinstance(each, CallArguments) else CallArguments(_as_tuple(each), {}) for each in calls]


def _as_tuple(item: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", item) if isinstance(item, tuple) else (item,)


def differentiate_sum(outcome: Any, wanted: bool) -> None:
    """The gradients of the sum of all outputs, which go nowhere."""
    outputs = [leaf for leaf in _tensors(outcome) if leaf.requires_grad]
    leaves = list(_leaves_of(outputs))
    if leaves:
        total = sum((_real(output).sum() for output in outputs), torch.zeros(()))
        torch.autograd.grad(total, leaves, allow_unused=True)
    elif wanted:
        raise BadFeed("no output of the model requires a gradient", hint="leave out `backward`, or train parameters")


@contextmanager
def watching(
    model: Callable[..., Any],
    *,
    options: Options,
    dynamic: bool | None,
    train: bool | None,
    backward: bool | None,
    differentiate: Differentiate = differentiate_sum,
) -> Generator[tuple[Watched, ModelCall]]:
    """Inside, `run(arguments)` calls the compiled model, and the record fills.

    With `train` the model is in training mode, or in evaluation mode without gradients; None leaves it as it is.
    `backward` asks for gradients too; None does so if there is something to differentiate. Modes, buffers and torch's
    random numbers are afterwards what they were, and by default gradients are.
    """
    seen = Watched(options.target)
    gradients = torch.enable_grad if backward else torch.no_grad if train is False or backward is False else nullcontext
    with ExitStack() as stack:
        stack.enter_context(_kept(model, train))
        compiled = stack.enter_context(_compiled(model, seen, options, dynamic))

        def run(arguments: CallArguments, observer: Observer | None = None, *, fused: bool = False) -> Any:
            looking = nullcontext() if fused else observing(_both(seen.note, observer))
            with gradients(), looking, recording() as graphs:
                outcome = _call(compiled, arguments)
                if backward is not False:
                    differentiate(outcome, bool(backward))
            seen.graphs += graphs
            seen.calls += [seen.call] * len(graphs)
            seen.call += 1
            return outcome

        yield seen, run


def _both(first: Observer, second: Observer | None) -> Observer:
    def note(event: Event) -> None:
        first(event)
        if second is not None:
            second(event)

    return note


def _call(compiled: Callable[..., Any], arguments: CallArguments) -> Any:
    try:
        return compiled(*arguments.args, **arguments.kwargs)
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, AssayError):
            raise error.inner_exception from None
        raise


def _tensors(outcome: Any) -> Generator[torch.Tensor]:
    for leaf in pytree.tree_leaves(outcome):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, Mapping):
            yield from _tensors(list(cast("Mapping[Any, Any]", leaf).values()))
        elif hasattr(leaf, "__dataclass_fields__"):
            yield from _tensors([getattr(leaf, each.name) for each in fields(leaf)])


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _leaves_of(outputs: Sequence[torch.Tensor]) -> Generator[torch.Tensor]:
    """The tensors whose gradients the outputs depend on."""
    waiting: list[Any] = [output.grad_fn for output in outputs if output.grad_fn is not None]
    yield from (output for output in outputs if output.grad_fn is None)
    known = set(waiting)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            yield node.variable
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                waiting.append(following)


# --- leaving no trace


@contextmanager
def _kept(model: Any, train: bool | None) -> Generator[None]:
    """The model in the mode asked for; its mode, its buffers and the random numbers are put back."""
    module = isinstance(model, torch.nn.Module)
    modes = {part: part.training for part in model.modules()} if module else {}
    buffers = [(buffer, version_of(buffer), buffer.detach().clone()) for buffer in model.buffers()] if module else []
    if module and train is not None:
        model.train(train)
    try:
        with torch.random.fork_rng(devices=()):  # pyright: ignore[reportUnknownMemberType]
            yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        with torch.no_grad():
            for buffer, version, content in buffers:
                if version_of(buffer) != version:
                    buffer.copy_(content)


@contextmanager
def _compiled(
    model: Callable[..., Any], seen: Watched, options: Options, dynamic: bool | None
) -> Generator[Callable[..., Any]]:
    """The model compiled in a region of its own, which is emptied afterwards."""

    def assay(module: Any, inputs: Any) -> Any:
        return backend(module, inputs, options=options)

    def failed(compilation: str, code: CodeType, reason: str) -> None:
        place = code.co_name, code.co_filename, code.co_firstlineno
        seen.failures.append(GuardFailure(seen.call, compilation, *place, reason))

    with own_region(model, assay, failed, dynamic=dynamic) as region:
        try:
            yield region.model
        finally:
            left = [Break(each.file, each.line, each.code, each.reason, each.name) for each in region.left]
            known = {(each.file, each.line) for each in left}
            seen.breaks += [each for each in map(_break, region.breaks) if (each.file, each.line) not in known]
            seen.breaks += left
            seen.given_up |= {failure.compilation for failure in seen.failures} - region.made


def _break(reason: Any) -> Break:
    frame = reason.user_stack[-1]
    return Break(frame.filename, frame.lineno or 0, (frame.line or "").strip(), reason.reason)
