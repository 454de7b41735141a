"""Texts in `.pt2` files: each kind has a rule, and none is code."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest
from torch._export.serde import schema, union

from assay.frontends.torch.expressions import plain_arithmetic
from assay.frontends.torch.texts import KEPT, LEFT_OUT, TEXTS


def reachable(kind: Any, found: set[Any]) -> set[Any]:
    """The classes of torch's schema that a program or a configuration of tensors may hold."""
    for part in typing.get_args(kind) or (kind,):
        if dataclasses.is_dataclass(part) and part not in found:
            found.add(part)
            for hint in typing.get_type_hints(part, globalns=dict(vars(schema))).values():
                reachable(hint, found)
        elif typing.get_args(part):
            reachable(part, found)
    return found


def has_texts(hint: Any) -> bool:
    return hint is str or any(map(has_texts, typing.get_args(hint)))


def test_every_text_of_torchs_schema_has_a_rule() -> None:
    kinds = reachable(schema.ExportedProgram, reachable(schema.PayloadConfig, set()))
    assert len(kinds) > 30
    texts = {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, hint in typing.get_type_hints(kind, globalns=dict(vars(schema))).items()
        if name in {field.name for field in dataclasses.fields(kind)} and has_texts(hint)
    }
    assert texts == {place for place in TEXTS if place.count(".") == 1} | LEFT_OUT
    assert set(KEPT) <= texts
    assert issubclass(schema.Argument, union._Union)


@pytest.mark.parametrize(
    "text",
    [
        "s0",
        "s0 + 2*u1 - 3",
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(2), Pow(Symbol('s0', integer=True), Integer(2)))",
        "Max(1, FloorDiv(s0, 4)) % 3",
        "Eq(PythonMod(s0, 2), 0)",
        "-s0 < int_oo",
        "s0**-1",
    ],
)
def test_arithmetic_is_taken(text: str) -> None:
    assert plain_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "__import__('os')",
        "s0.__class__",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "Symbol('__import__(1)')",
        "Symbol('s0', evil=__import__('os'))",
        "Symbol(Symbol('s0'))",
        "f'{s0}'",
        "s0 if s1 else s2",
        "9**9**9**9",
        "Pow(Pow(Pow(10, 500), 500), 500)",
        "Pow(2, s0)",
        "2**-(10**9)",
        "1 << 99999999999",
        "10**400*" * 20 + "10**400",
        "(" * 5000 + "1" + ")" * 5000,
        "-" * 9000 + "1",
        "s0+" * 9000 + "1",
        "s１",
        "eval(1)",
        "Integer",
        "'s0'",
        "1j",
        "...",
    ],
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    assert plain_arithmetic(text) is None
