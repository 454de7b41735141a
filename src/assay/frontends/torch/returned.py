"""What an FX graph returns: which outputs are numbers, arguments handed back, views, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from assay.frontends.torch.numbers import Numbers, numbers_of
from assay.frontends.torch.private.ops import storage_id
from assay.frontends.torch.views import ViewCalls, view_calls


@dataclass(frozen=True, slots=True)
class Place:
    """Where a view lies in the memory of an argument: its strides, then its offset from where the argument begins,
    which may be elsewhere in its memory from call to call."""

    argument: int
    numbers: Numbers
    calls: ViewCalls | None = None
    """The ops that make the view, where view ops alone do. AOTAutograd takes its gradient from how it was made, and
    that of `as_strided` is another one where elements of the argument share memory."""

    def of(self, shape: Sequence[int], arguments: Sequence[Any]) -> torch.Tensor | None:
        """The view of this shape; None where a symbol is not among what the arguments show."""
        if self.calls is not None:
            return self.calls.of(arguments)
        known, whole = self.numbers.of(arguments), arguments[self.argument].detach()
        if known is None:
            return None
        return whole.as_strided(shape, known[:-1], whole.storage_offset() + known[-1])

    @property
    def depends_on_data(self) -> bool:
        """Whether arguments alone do not tell the place."""
        return not self.numbers.names.issubset(name for name, _, _ in self.numbers.symbols)


@dataclass(frozen=True, slots=True)
class Returned:
    """One entry of what an FX graph returns.

    It is the graph's output number `output`, or, where that is None, the constant `constant`. `argument`
    is the number of the input that is handed back as it is; `number` says that a Python number is due.
    """

    output: int | None = None
    constant: Any = None
    argument: int | None = None
    number: bool = False
    memory: int = -1
    """The number of the piece of memory it lies in; entries of one number are views of each other."""
    borrowed: bool = False
    """Whether that piece of memory is an input's."""
    place: Place | None = None
    """Where in it a borrowed entry lies; None if it reads that memory in another way."""
    order: tuple[int, ...] | None = None
    """The axes from the outermost to the innermost in memory; None where torch's result is not dense."""
    strides: Numbers | None = None
    """Strides, then the offset in its memory: of a result with axes of size 0 or 1, whose strides nothing else tells
    and dynamo looks at, and of one that is `spread`."""
    spread: bool = False
    """Whether it lies in its memory with gaps or repetitions, or beside others that the caller sees."""


def returned_entries(
    items: Sequence[Any], placeholders: Sequence[fx.Node], visible: int | None = None
) -> tuple[Returned, ...]:
    """One description an entry; nodes that have a value are numbered as outputs in their order.

    The caller sees the first `visible` entries (all if None): they lie in memory as eager's do, also among each other.
    """
    positions = {node: index for index, node in enumerate(placeholders)}
    inputs = [node.meta.get("val") for node in placeholders]
    memories = {storage_of(value): -1 - index for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
    entries: list[Returned] = []
    count = 0
    for item in items:
        if not isinstance(item, fx.Node) or item.meta.get("val") is None:
            entries.append(Returned(constant=None if isinstance(item, fx.Node) else item))
            continue
        entries.append(_entry(item, count, positions, memories, inputs))
        count += 1
    metas = [item.meta.get("val") if isinstance(item, fx.Node) else None for item in items]
    return (*_spread(entries[:visible], metas, inputs), *(entries[visible:] if visible is not None else ()))


def _spread(entries: Sequence[Returned], metas: Sequence[Any], inputs: Sequence[Any]) -> Iterator[Returned]:
    """Entries of new memory with how they lie in it, where that is not as a dense tensor of its own."""
    own = [entry.memory for entry in entries if not entry.borrowed and entry.memory >= 0]
    for entry, meta in zip(entries, metas, strict=False):
        plain = entry.memory not in own or meta.layout is not torch.strided
        if plain or (entry.order is not None and own.count(entry.memory) == 1):
            yield entry
        else:
            yield replace(entry, spread=True, strides=numbers_of((*meta.stride(), meta.storage_offset()), inputs))


def _entry(
    node: fx.Node, output: int, positions: Mapping[fx.Node, int], memories: dict[int, int], inputs: Sequence[Any]
) -> Returned:
    meta, argument = node.meta["val"], positions.get(node)
    if not isinstance(meta, torch.Tensor):
        return Returned(output, argument=argument, number=True)
    memory = memories.setdefault(storage_of(meta), output)
    place = _place(node, -1 - memory, positions, inputs) if memory < 0 else None
    told = meta.layout is torch.strided and not {0, 1}.isdisjoint(_sizes(meta))
    strides = numbers_of((*meta.stride(), 0), inputs) if told else None
    order = axis_order(meta)
    return Returned(output, None, argument, False, memory, memory < 0, place, order, strides)


def _sizes(tensor: torch.Tensor) -> list[int]:
    """The sizes that are no symbols."""
    return [size for size in tensor.shape if isinstance(size, int)]  # pyright: ignore[reportUnnecessaryIsInstance]


def _place(node: fx.Node, argument: int, positions: Mapping[fx.Node, int], inputs: Sequence[Any]) -> Place | None:
    view: Any = node.meta["val"]
    if view.layout is not torch.strided or _reading(view) != _reading(inputs[argument]):
        return None
    start = view.storage_offset() - inputs[argument].storage_offset()
    return Place(argument, numbers_of((*view.stride(), start), inputs), view_calls(node, positions, inputs))


def _reading(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How the memory is read: as which dtype, conjugated, negated."""
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def storage_of(tensor: torch.Tensor) -> int:
    """What tells one piece of memory from another; sparse tensors have none and count by themselves."""
    return storage_id(tensor) if tensor.layout is torch.strided else -id(tensor)


def axis_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes from the outermost to the innermost in memory; None if the tensor is not dense."""
    if tensor.layout is not torch.strided:
        return None
    sizes, strides = [_hint(s) for s in tensor.shape], [_hint(s) for s in tensor.stride()]
    if None in sizes or None in strides:
        return tuple(range(tensor.dim()))
    order = sorted(range(tensor.dim()), key=lambda axis: -(strides[axis] or 0))
    step = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != step and 0 not in sizes:
            return None
        step *= sizes[axis] or 1
    return tuple(order)


def _hint(size: Any) -> int | None:
    """A number; for a symbolic size the one that it was traced with, None if it depends on data."""
    if isinstance(size, int):
        return size
    return size.node.hint if size.node.has_hint() else None
