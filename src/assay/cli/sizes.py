"""Sizes of symbolic dims that nobody gave: whether 1 will do, and what to try if not."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from assay.errors import AssayError, BadFeed, LimitExceeded, OutOfMemory, RunFailed, RunStopped
from assay.ir.dims import Dim, Expr, evaluate, symbols
from assay.ir.graph import Graph
from assay.ir.types import TensorType

_LARGEST = 1 << 20
"""No size beyond this is suggested."""


def check_sizes(lowered: Callable[[], Graph], known: Mapping[str, int], assumed: Sequence[str]) -> None:
    """BadFeed if some tensor would have a negative size with dims as `known`, and all of `assumed` 1: it names those
    that are to blame and a size for them with which none has. A model that cannot be lowered is not judged."""
    sizes = {**known, **dict.fromkeys(assumed, 1)}
    try:
        dims = _dims(lowered()) if sizes else ()
    except AssayError:
        return
    wrong = {dim: size for dim in dims if (size := evaluate(dim, sizes)) is not None and size < 0}
    blamed = [name for name in sizes if any(name in symbols(dim) for dim in wrong)]
    if not blamed:
        return
    missing = ", ".join(f"'{name}'" for name in blamed if name in assumed)
    small = ", ".join(f"{name}={known[name]}" for name in blamed if name not in assumed)
    told = f"the size of the symbolic dim {missing} is missing: with 1" if missing else f"{small} is too small: with it"
    raise BadFeed(
        f"{told} a tensor would have the size {max(wrong.values())}",
        hint=_suggestion(blamed, _fitting(wrong, sizes, blamed)),
    )


def _dims(graph: Graph) -> set[Expr]:
    kinds = [value.type for node in graph.walk() for value in node.outputs]
    shapes: Iterable[Sequence[Dim]] = [kind.shape or () for kind in kinds if isinstance(kind, TensorType)]
    return {dim for shape in shapes for dim in shape if isinstance(dim, Expr)}


def _fitting(dims: Iterable[Expr], sizes: Mapping[str, int], blamed: Sequence[str]) -> int | None:
    """The least power of two for those that are blamed with which all dims are at least 1."""
    candidates = (1 << power for power in range(_LARGEST.bit_length()))
    for size in candidates:
        tried = {**sizes, **dict.fromkeys(blamed, size)}
        if all((evaluate(dim, tried) or 0) > 0 for dim in dims):
            return size
    return None


def _suggestion(names: Sequence[str], size: int | None) -> str:
    words = " ".join(f"--dim {name}={'SIZE' if size is None else size}" for name in names)
    return f"add {words}" if size is None else f"add {words}, or more"


@contextmanager
def told_if_it_fails(assumed: Sequence[str]) -> Generator[None]:
    """A run that fails inside says in its hint which dims were taken to be 1, unless it used up its budget."""
    try:
        yield
    except (OutOfMemory, RunStopped):
        raise
    except (RunFailed, LimitExceeded) as error:
        if not assumed:
            raise
        words = " ".join(f"--dim {name}=16" for name in assumed)
        hint = f"{', '.join(assumed)} had no size and {'is' if len(assumed) == 1 else 'are'} 1; try {words}"
        raise type(error)(error.message, where=error.where, hint=hint) from error
