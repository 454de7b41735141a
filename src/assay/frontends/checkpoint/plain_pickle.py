"""Pickles that build plain containers, read without Python's reader, which calls whatever a pickle names.

A pickle is a list of instructions for a machine with a stack. Here are the few that containers, numbers and texts need.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from assay.errors import AssayError, ImportFailed

STATE_DICT = "save a state dict: torch.save(model.state_dict(), path)"
"""What to do about a pickle of something else."""


class PickledName(NamedTuple):
    """A name of Python's that a pickle mentions."""

    module: str
    name: str


_MARK = object()


class PickleMachine:
    """Runs the instructions of a pickle that build containers.

    `calls` says what happens where a name is called, `refer` what a reference to something outside stands for.
    """

    def __init__(self, calls: Mapping[tuple[str, str], Callable[..., Any]], refer: Callable[[Any], Any]) -> None:
        self._calls, self._refer = calls, refer
        self._stack: list[Any] = []
        self._kept: dict[int, Any] = {}

    def run(self, pickle: bytes) -> Any:
        """What the pickle holds."""
        try:
            for opcode, argument, _ in pickletools.genops(pickle):
                if opcode.name == "STOP":
                    return self._pop()
                self._do(opcode.name, argument)
        except AssayError:
            raise
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise ImportFailed(f"what is pickled is damaged: {type(error).__name__}: {error}") from None
        raise ImportFailed("what is pickled does not end")

    def _do(self, name: str, argument: Any) -> None:
        if name in _PUSHED:
            self._stack.append(argument)
        elif name in _MADE:
            self._stack.append(_MADE[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            self._stack[len(self._stack) - count :] = [tuple(self._top(count))]
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in _IGNORED:
            raise ImportFailed(f"what is pickled has the instruction {name}", hint=STATE_DICT)

    def _pop(self) -> Any:
        found = self._stack.pop()
        if found is _MARK:
            raise ValueError("a mark where a value is due")
        return found

    def _top(self, count: int) -> list[Any]:
        found = self._stack[len(self._stack) - count :] if count else []
        if len(found) < count or any(each is _MARK for each in found):
            raise ValueError("values are missing")
        return found

    def _marked(self) -> list[Any]:
        """All after the last mark."""
        found: list[Any] = []
        while (each := self._stack.pop()) is not _MARK:
            found.append(each)
        return found[::-1]

    def mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def marked_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._marked()))

    def keep(self, number: Any) -> None:
        self._kept[len(self._kept) if number is None else number] = self._stack[-1]

    def recall(self, number: int) -> None:
        self._stack.append(self._kept[number])

    def global_(self, name: str) -> None:
        self._stack.append(PickledName(*name.split(" ", 1)))

    def global_of_texts(self, _: Any) -> None:
        module, name = self._top(2)
        self._stack[-2:] = [PickledName(str(module), str(name))]

    def append(self, _: Any) -> None:
        value = self._pop()
        self._container(list).append(value)

    def extend(self, _: Any) -> None:
        values = self._marked()
        self._container(list).extend(values)

    def set_item(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._container(dict)[key] = value

    def set_items(self, _: Any) -> None:
        pairs = self._marked()
        self._container(dict).update(zip(pairs[::2], pairs[1::2], strict=True))

    def _container(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise ValueError(f"a {kind.__name__} is due")
        return self._stack[-1]

    def refer(self, _: Any) -> None:
        self._stack.append(self._refer(self._pop()))

    def call(self, _: Any) -> None:
        arguments, name = self._pop(), self._pop()
        if not isinstance(name, PickledName) or name not in self._calls or not isinstance(arguments, tuple):
            called = ".".join(name) if isinstance(name, PickledName) else repr(name)
            raise ImportFailed(f"what is pickled calls {called:.100}", hint=STATE_DICT)
        self._stack.append(self._calls[name](*cast(tuple[Any, ...], arguments)))

    def build(self, _: Any) -> None:
        """The attributes of an OrderedDict, such as the versions in a state dict, are left out."""
        self._pop()
        self._container(dict)


_PUSHED = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES"),
    )
)
"""Instructions that put their argument on the stack."""
_MADE: Mapping[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "NONE": lambda: None,
}
_TUPLES: Mapping[str, int] = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset({"PROTO", "FRAME"})
_STEPS: Mapping[str, Callable[[PickleMachine, Any], None]] = {
    "MARK": PickleMachine.mark,
    "TUPLE": PickleMachine.marked_tuple,
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), PickleMachine.keep),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), PickleMachine.recall),
    "GLOBAL": PickleMachine.global_,
    "STACK_GLOBAL": PickleMachine.global_of_texts,
    "APPEND": PickleMachine.append,
    "APPENDS": PickleMachine.extend,
    "SETITEM": PickleMachine.set_item,
    "SETITEMS": PickleMachine.set_items,
    "BINPERSID": PickleMachine.refer,
    "REDUCE": PickleMachine.call,
    "BUILD": PickleMachine.build,
}
