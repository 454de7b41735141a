"""How large the numbers may become that a program computes sizes with: torch computes them exactly, at any length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from assay.errors import ImportFailed
from assay.frontends.torch.expressions import MOST_BITS
from assay.frontends.torch.private.serde import schema

_SIZE_BITS = 64


def check_magnitudes(graph: schema.Graph) -> None:
    """ImportFailed if a size may have more bits than any size has: `1 << (1 << 40)` would take all memory."""
    bits: dict[str, float] = {}
    for node in graph.nodes:
        arguments = [each.arg for each in node.inputs]
        for body in (each.as_graph.graph for each in arguments if each.type == "as_graph"):
            check_magnitudes(body)
        grows = _GROWTH.get(node.target)
        if grows is None or len(arguments) != 2:
            continue
        made = grows(_bits(arguments[0], bits), _bits(arguments[1], bits), _number(arguments[1]))
        if made > MOST_BITS:
            raise ImportFailed("the program computes numbers of absurd length", where=f"node '{node.name}'")
        bits.update((output.value.as_name, made) for output in node.outputs if output.type == "as_sym_int")


def _bits(argument: schema.Argument, known: Mapping[str, float]) -> float:
    """About how many bits an argument may have."""
    if argument.type == "as_sym_int" and argument.value.type == "as_name":
        return known.get(argument.value.as_name, _SIZE_BITS)
    number = _number(argument)
    return max(int(number).bit_length(), 1) if math.isfinite(number) else _SIZE_BITS


def _number(argument: schema.Argument) -> float:
    """The number that an argument is; as large as can be for one that only a run tells."""
    value: Any = argument.value
    if isinstance(value, int | float):
        return value
    if argument.type == "as_sym_int" and value.type == "as_int":
        return value.as_int
    return math.inf if argument.type == "as_sym_int" else _SIZE_BITS


_GROWTH: Mapping[str, Callable[[float, float, float], float]] = {
    "_operator.add": lambda a, b, number: max(a, b) + 1,
    "_operator.sub": lambda a, b, number: max(a, b) + 1,
    "_operator.mul": lambda a, b, number: a + b,
    "_operator.pow": lambda a, b, number: a * max(abs(number), 1),
    "_operator.lshift": lambda a, b, number: a + max(number, 0),
}
"""The bits of a result, out of those of the operands and the second one itself."""
