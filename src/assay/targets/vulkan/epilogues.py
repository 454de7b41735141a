"""Epilogues: a call and the elementwise unit that goes on with its result, as one kernel.

Each element of the result is given to the unit while it is a value; it reaches memory only if somebody else reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from assay.targets.shared.tape import Control, Step
from assay.targets.vulkan.code import ShaderValue
from assay.targets.vulkan.pointwise import go_on
from assay.targets.vulkan.shader import Epilogue, Shader
from assay.targets.vulkan.templates import Template

_SHORT = 8
"""Units of so few instructions are written out for each element."""


def one_by_one(steps: Sequence[Step]) -> list[Step]:
    """The calls of a tape, each with its epilogue in it, and the steps that begin and end loops."""
    calls: list[Step] = []
    for at, step in enumerate(steps):
        if step.control is not Control.CHECK:
            calls.append(step if step.epilogue is None else _joined(step, step.epilogue, steps[at + 1 :]))
    return calls


def _joined(host: Step, unit: Step, later: Sequence[Step]) -> Step:
    """Operands are what the call reads, what the unit reads besides, the call's result, then those of the unit."""
    result = host.operands[-1]
    inputs, results = unit.operands[: -unit.writes], unit.operands[-unit.writes :]
    others = [view for view in inputs if view.storage is not result.storage]
    overwritten = any(view.storage is result.storage for view in results)
    read_later = any(part.touches(result.storage) for step in later for part in step.parts)
    kernel = _template(
        cast(Template, host.kernel),
        cast(Template, unit.kernel),
        tuple(view.storage is result.storage for view in inputs),
        stored=not overwritten and (result.storage.given or read_later),
        short=isinstance(unit.work, int) and unit.work <= _SHORT,
    )
    return replace(
        host,
        kernel=kernel,
        operands=[*host.operands[:-1], *others, result, *results],
        numbers=[*host.numbers, *unit.numbers, unit.cols],
        writes=1 + len(results),
        nodes=(*host.nodes, *unit.nodes),
        epilogue=None,
    )


def _template(host: Template, unit: Template, known: tuple[bool, ...], *, stored: bool, short: bool) -> Template:
    """`known` are the inputs of the unit that are the call's result, which is `stored` if others read it."""
    inputs = [dtype for dtype, taken in zip(unit.operands, known, strict=False) if not taken]
    own = host.operands[:-1]
    texels = (*host.texels, *[0] * (len(own) - len(host.texels)), *unit.texels[: len(inputs)])
    return replace(
        host,
        source=f"{host.source} then {unit.source} of {known}{' and stored' if stored else ''}",
        write=write_joined,
        parameters=(("host", host), ("unit", unit), ("known", known), ("stored", stored), ("short", short)),
        texels=texels,
        operands=(*own, *inputs, host.operands[-1], *unit.operands[len(known) :]),
        numbers=host.numbers + unit.numbers + 1,
    )


def write_joined(
    s: Shader, *, host: Template, unit: Template, known: tuple[bool, ...], stored: bool, short: bool
) -> None:
    """The call's kernel, which hands its elements on."""
    first, reads = len(host.operands) - 1, known.count(False)
    others, result, results = (
        s.operands[first : first + reads],
        s.operands[first + reads],
        s.operands[first + reads + 1 :],
    )
    s.operands = [*s.operands[:first], result]
    parameters: dict[str, Any] = dict(unit.parameters)
    columns = s.number(host.numbers + unit.numbers)

    def then(place: ShaderValue, value: ShaderValue) -> None:
        if stored:
            result.store(place, value)
        left = iter(others)
        inputs = [value if taken else next(left) for taken in known]
        go_on(s, parameters, [*inputs, *results], place, columns, host.numbers)

    s.then = Epilogue(then, short)
    host.write(s, **dict(host.parameters))
