"""Dynamo: AOTAutograd as a backend's tool, its errors and counts, and a compile cache of one's own. Loads dynamo."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, TypeVar, cast

from torch._C._dynamo.eval_frame import (
    _debug_get_cache_entry_list,  # pyright: ignore[reportPrivateUsage]
    _FrameAction,  # pyright: ignore[reportPrivateUsage]
    _FrameExecStrategy,  # pyright: ignore[reportPrivateUsage]
    _get_cache_entries_for_region,  # pyright: ignore[reportPrivateUsage]
    reset_code,
    set_code_exec_strategy,
)
from torch._dynamo import config, convert_frame, optimize, pgo
from torch._dynamo import utils as _utils
from torch._dynamo.backends.common import aot_autograd as aot_autograd
from torch._dynamo.exc import BackendCompilerFailed as BackendCompilerFailed
from torch._dynamo.exc import TorchDynamoException as TorchDynamoException
from torch._dynamo.exc import Unsupported as Unsupported
from torch._dynamo.exc import UserError
from torch._dynamo.guards import DeletedGuardManagerWrapper
from torch._guards import CompileContext

from assay.frontends.torch.private.ops import compiling

__all__ = [
    "BackendCompilerFailed",
    "Failed",
    "LeftFunction",
    "Region",
    "TorchDynamoException",
    "Unsupported",
    "aot_autograd",
    "boxed",
    "counters",
    "freeze_inductor",
    "own_region",
]

_PGO, _FRAMES = cast(Any, pgo), cast(Any, convert_frame)

counters: Any = cast(Any, _utils).counters
"""What dynamo counts: graphs under `stats`, breaks under `graph_break`."""

Function = TypeVar("Function", bound=Callable[[list[Any]], Any])


def boxed(function: Function) -> Function:
    """Mark a function of one list, so that AOTAutograd hands it the list and keeps no argument alive."""
    cast(Any, function)._boxed_call = True
    return function


def freeze_inductor() -> None:
    """From now on inductor takes weights for constants. Dynamo asks for it too, so that the option of one
    `torch.compile` is not enough."""
    importlib.import_module("torch._inductor.compile_fx")
    cast(Any, importlib.import_module("torch._inductor.config")).freezing = True


Failed = Callable[[str, CodeType, str], None]
"""Told of a guard that did not hold: the compilation that follows, the function, torch's words for the guard."""


@dataclass(frozen=True, slots=True)
class LeftFunction:
    """A function that dynamo does not compile at all: the line that it cannot trace, and its words."""

    name: str
    file: str
    line: int
    code: str
    reason: str


@dataclass(slots=True)
class Region:
    """A model compiled apart from all else that is compiled, and what torch noted of it."""

    model: Callable[..., Any]
    made: set[str] = field(default_factory=set[str])
    """Compilations that came to code."""
    breaks: list[Any] = field(default_factory=list[Any])
    """torch's reasons for graph breaks: `reason` and `user_stack`."""
    left: list[LeftFunction] = field(default_factory=list[LeftFunction])
    """Functions that run eagerly from their first line to their last."""


@contextmanager
def own_region(
    model: Callable[..., Any], backend: Callable[..., Any], failed: Failed, *, dynamic: bool | None
) -> Generator[Region]:
    """`model` compiled by `backend` with a compile cache of its own, which is emptied afterwards.

    Its graph breaks and its notes on sizes that changed (`pgo`) are its own too: torch's are put aside while it is
    compiled for the region, and only then, under the lock that all compilations hold.
    """
    codes: dict[CodeType, None] = {}

    def guard_failed(failure: Any) -> None:
        codes.setdefault(failure.orig_code)
        failed(_compilation(), failure.orig_code, str(failure.reason))

    def compiled(code: CodeType, new_code: CodeType) -> None:
        codes.setdefault(code)
        region.made.add(_compilation())

    made: Any = optimize(backend, guard_fail_fn=guard_failed, dynamic=dynamic, isolate_recompiles=True)
    notes, inner = _Notes(), made.callback

    def compile_frame(*args: Any, **kwargs: Any) -> Any:
        with compiling(), notes.in_place(region.breaks), _bytecode_hook(compiled):
            return inner(*args, **kwargs)

    compile_frame._torchdynamo_orig_backend = inner  # pyright: ignore[reportFunctionMemberAccess]
    made.callback = compile_frame
    region = Region(made(model))
    frames: Any = inner._torchdynamo_orig_backend
    frames._inner_convert = _Telling(frames._inner_convert, region.left)
    with compiling():
        _offer_what_was_left()
    try:
        with cast(Any, config).patch(automatic_dynamic_local_pgo=False, automatic_dynamic_remote_pgo=False):
            yield region
    finally:
        with compiling():
            for code in codes:
                _forget(code, made._isolate_recompiles_id)


class _Telling:
    """What converts a frame for dynamo, and tells of the functions that it leaves to eager."""

    def __init__(self, convert: Any, left: list[LeftFunction]) -> None:
        self._convert, self._left = convert, left

    def __call__(self, frame: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._convert(frame, *args, **kwargs)
        except (Unsupported, UserError) as error:
            code: CodeType = frame.f_code
            stack: Any = getattr(error, "real_stack", None)
            place = (stack[-1].filename, stack[-1].lineno, stack[-1].line) if stack else None
            file, line, text = place or (code.co_filename, code.co_firstlineno, "")
            self._left.append(LeftFunction(code.co_qualname, file, line or 0, (text or "").strip(), str(error)))
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._convert, name)


def _compilation() -> str:
    return str(CompileContext.current_compile_id())


@dataclass(slots=True)
class _Notes:
    """Notes on sizes as `pgo` keeps them: what it has learnt, and what it had read from a file."""

    learnt: Any = None
    read: Any = None

    @contextmanager
    def in_place(self, breaks: list[Any]) -> Generator[None]:
        """Inside, torch reads and writes these notes; graph breaks move to `breaks`. Needs the lock."""
        before = _PGO._CODE_STATE, _PGO._INIT_CODE_STATE
        reasons: list[Any] = cast(Any, _utils).graph_break_reasons
        mark = len(reasons)
        _PGO._CODE_STATE, _PGO._INIT_CODE_STATE = self.learnt, self.read
        try:
            yield
        finally:
            self.learnt, self.read = _PGO._CODE_STATE, _PGO._INIT_CODE_STATE
            _PGO._CODE_STATE, _PGO._INIT_CODE_STATE = before
            breaks += reasons[mark:]
            del reasons[mark:]


@contextmanager
def _bytecode_hook(hook: Callable[[CodeType, CodeType], None]) -> Generator[None]:
    """Inside, dynamo tells `hook` of the code that it makes. Needs the lock: dynamo tells of every compilation."""
    handle = _FRAMES.register_bytecode_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _offer_what_was_left() -> None:
    """Have dynamo look again at functions that it left to eager: it remembers these for all who compile, and would tell
    the others neither that it does nor why. Needs the lock."""
    for reference in _FRAMES.input_codes.seen:
        code = reference()
        if code is not None and not _debug_get_cache_entry_list(code):
            set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.DEFAULT, _FrameAction.DEFAULT))


def _forget(code: CodeType, region: int) -> None:
    """Drop what the region compiled for `code`; what others compiled for it stays."""
    mine = _get_cache_entries_for_region(code, region)
    if len(mine) == len(_debug_get_cache_entry_list(code)):
        reset_code(code)
        return
    for entry in mine:
        state: Any = entry.guard_manager.extra_state
        state.invalidate(entry, DeletedGuardManagerWrapper("the look at the model is over"))
    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.DEFAULT, _FrameAction.DEFAULT))
