"""The JSON of an exported program → the objects of torch's schema.

Every text in it is checked by the rule of its field (`texts.py`). A text without a rule, as a newer torch may bring, is
refused; keys that the schema does not have are left out.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any, cast

from assay.errors import ImportFailed
from assay.frontends.torch.private.serde import Alternatives, schema
from assay.frontends.torch.texts import KEPT, LEFT_OUT, TEXTS, NotPlain, TextRule

TRUST = "if you trust the file, load it with torch.export.load and give assay.load the program"


def program_of(document: Any) -> schema.ExportedProgram:
    """The program in a JSON document; ImportFailed if a text in it is not plain."""
    found = cast(schema.ExportedProgram, build(schema.ExportedProgram, document))
    if not found.verifiers:
        raise ImportFailed("the program names no rules that it was checked by", hint=TRUST)
    return found


def build(kind: Any, data: Any, rule: TextRule | None = None, where: str = "") -> Any:
    """`data` as an object of the type `kind`, which is one of torch's schema or made of such."""
    origin = typing.get_origin(kind)
    if kind is str:
        return _text(data, rule, where)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else build(typing.get_args(kind)[0], data, rule, where)
    if origin is list:
        return [build(typing.get_args(kind)[0], item, rule, where) for item in _expect(data, list, where)]
    if origin is dict:
        return _mapping(typing.get_args(kind)[1], data, rule, where)
    if issubclass(kind, Alternatives):
        return _alternative(kind, data)
    if dataclasses.is_dataclass(kind):
        return _record(kind, data)
    if issubclass(kind, IntEnum):
        return kind(_expect(data, int, where))
    return float(data) if kind is float and not isinstance(data, bool) else _expect(data, kind, where)


def _expect(data: Any, kind: type, where: str) -> Any:
    if type(data) is not kind:
        raise ImportFailed(f"the program's {where} is a {type(data).__name__} where a {kind.__name__} belongs")
    return data


def _text(data: Any, rule: TextRule | None, where: str) -> str:
    text = _expect(data, str, where)
    if rule is None:
        raise ImportFailed(f"the program has a {where}, of which nothing is known here", hint=TRUST)
    try:
        return rule(text)
    except NotPlain as error:
        raise ImportFailed(f"the program's {where} is not plain: {error}: {text[:60]!r}", hint=TRUST) from None


def _mapping(kind: Any, data: Any, rule: TextRule | None, where: str) -> dict[str, Any]:
    """A dictionary; the rule of its field is that of its keys. Those of its values stand under `FIELD.value`."""
    inner, kept = TEXTS.get(f"{where}.value"), KEPT.get(where)
    items = {key: item for key, item in _expect(data, dict, where).items() if kept is None or key in kept}
    return {_text(key, rule, where): build(kind, item, inner, where) for key, item in items.items()}


def _record(kind: Any, data: Any) -> Any:
    given = _expect(data, dict, kind.__name__)
    read = [name for name in _fields(kind) if name in given and _place(kind, name) not in LEFT_OUT]
    return kind(**{name: _field(kind, name, given[name]) for name in read})


def _alternative(kind: Any, data: Any) -> Any:
    given = _expect(data, dict, kind.__name__)
    if len(given) != 1:
        raise ImportFailed(f"the program has a {kind.__name__} of {len(given)} kinds where one belongs")
    ((name, item),) = given.items()
    if name not in _fields(kind):
        raise ImportFailed(f"the program has a {kind.__name__} of an unknown kind {name[:60]!r}")
    return kind.create(**{name: _field(kind, name, item)})


def _field(kind: Any, name: str, data: Any) -> Any:
    place = _place(kind, name)
    return build(_fields(kind)[name], data, TEXTS.get(place), place)


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """The fields of a class of the schema, with their types."""
    hints = typing.get_type_hints(kind, globalns=dict(vars(schema)))
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _place(kind: Any, name: str) -> str:
    return f"{kind.__name__}.{name}"
