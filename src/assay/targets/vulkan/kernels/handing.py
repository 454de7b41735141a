"""Lanes that load for each other what all of them need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.shader import Shader

_BROAD = 16
"""Up to so many lanes load for each other; more have loads that serve all of them at once."""
_AT_ONCE = 2
"""How many elements are handed around before a loop goes on: longer ones take drivers long to compile."""
_STEP = 4
"""How many elements are taken at a time where nothing is handed around."""


def along(
    s: Shader,
    count: ShaderValue | int,
    lines: Sequence[ShaderValue],
    load: Callable[[ShaderValue, ShaderValue], ShaderValue],
    take: Callable[[ShaderValue, Sequence[ShaderValue]], None],
) -> None:
    """Call `take` with every index below `count` and what `load` finds for each of `lines` there.

    That is the same for all lanes, so each loads a part of it, where handing it around costs less.
    """
    handed = s.profile.subgroup_broadcast and s.local_size <= _BROAD
    step = s.local_size if handed else _STEP
    whole = count // step * step if isinstance(count, int) else count / step * step
    zero = s.value(0, "u32")
    if not isinstance(whole, int) or whole:
        with s.loop(zero, whole, step) as begin:
            if handed:
                own = [load(line, begin + s.lane()) for line in lines]
                with s.loop(zero, step, _AT_ONCE) as first:
                    for at in range(_AT_ONCE):
                        take(begin + first + at, [s.broadcast(value, first + at) for value in own])
            else:
                for at in range(step):
                    take(begin + at, [load(line, begin + at) for line in lines])
    if not isinstance(whole, int) or not isinstance(count, int) or whole < count:
        with s.loop(whole, count) as index:
            take(index, [load(line, index) for line in lines])


def handed(s: Shader, values: Sequence[ShaderValue]) -> Callable[[ShaderValue], list[ShaderValue]]:
    """What gives the values of a lane to all lanes. Every lane must come here, and where that is called."""
    if s.profile.subgroup_broadcast:
        return lambda lane: [s.broadcast(value, lane) for value in values]
    tables = [s.shared_table(value.kind, s.local_size) for value in values]
    s.barrier()
    for table, value in zip(tables, values, strict=True):
        table.store(s.lane(), value)
    s.barrier()
    return lambda lane: [table.load(lane) for table in tables]
