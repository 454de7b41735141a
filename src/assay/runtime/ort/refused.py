"""Names of ONNX Runtime that raise when they are used. Importing them works: many a program never uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from assay.errors import Unsupported
from assay.runtime.ort.names import CLASSES, MODULE, NameRow, Standing


def refuse(name: str, row: NameRow) -> NoReturn:
    """Unsupported, with the reason that the table gives."""
    raise Unsupported(f"ONNX Runtime's {name} is not available: {row.note}")


def refused_method(owner: str, name: str) -> Callable[..., NoReturn]:
    """A method that raises."""
    row = CLASSES[owner][name]

    def method(*arguments: Any, **named: Any) -> NoReturn:
        refuse(f"{owner}.{name}", row)

    method.__name__, method.__doc__ = name, f"Raises Unsupported: {row.note}."
    return method


class _Refused(type):
    """The type of classes and functions that raise whatever is done with them."""

    row: NameRow

    def __call__(cls, *arguments: Any, **named: Any) -> NoReturn:
        refuse(cls.__name__, cls.row)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"{cls.__name__}.{name}", cls.row)


def refused_name(name: str) -> Any:
    """What stands for the class or function `name` of the module."""
    row = MODULE[name]
    return _Refused(name, (), {"row": row, "__doc__": f"Raises Unsupported: {row.note}.", "__module__": __name__})


REFUSED = tuple(name for name, row in MODULE.items() if row.standing is Standing.REFUSED)
