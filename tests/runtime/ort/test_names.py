"""Every public name of the installed onnxruntime: the table tells what became of it, and the code does what it says."""

from __future__ import annotations

import enum
import inspect
import runpy
import types
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import onnxruntime
import pytest

import assay
from assay.errors import AssayError, Unsupported
from assay.runtime.ort.errors import EXCEPTIONS
from assay.runtime.ort.names import CLASSES, MODULE, NameRow, Standing

ROOT = Path(__file__).parents[3]


def public(owner: Any) -> set[str]:
    """The names of a module or class, modules that it happened to import left out."""
    found = {name for name in dir(owner) if not name.startswith("_")}
    return {name for name in found if name == "capi" or not isinstance(getattr(owner, name), types.ModuleType)}


def members(owner: type) -> set[str]:
    return public(owner) - set(dir(object))


def is_enumeration(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__members__")


def test_the_table_has_every_name_of_the_module() -> None:
    assert set(MODULE) == public(onnxruntime)


def test_every_class_is_told_by_its_names_or_refused_whole() -> None:
    classes = {name for name in MODULE if isinstance(getattr(onnxruntime, name, None), type)}
    plain = {name for name in classes if not is_enumeration(getattr(onnxruntime, name))}
    assert plain - {name for name in plain if MODULE[name].standing is Standing.REFUSED} == set(CLASSES)


@pytest.mark.parametrize("owner", CLASSES)
def test_the_table_has_every_name_of_a_class(owner: str) -> None:
    assert set(CLASSES[owner]) == members(getattr(onnxruntime, owner))


ENUMERATIONS = [name for name in MODULE if is_enumeration(getattr(onnxruntime, name, None))]


@pytest.mark.parametrize("name", ENUMERATIONS)
def test_enumerations_have_the_same_members(name: str) -> None:
    ours, theirs = getattr(assay, name), getattr(onnxruntime, name)
    assert issubclass(ours, enum.IntEnum)
    assert {key: int(value) for key, value in ours.__members__.items()} == {
        key: int(value) for key, value in theirs.__members__.items()
    }


ALL = [("", name, row) for name, row in MODULE.items()] + [
    (owner, name, row) for owner, rows in CLASSES.items() for name, row in rows.items()
]


@pytest.mark.parametrize(("owner", "name", "row"), ALL, ids=lambda value: value if isinstance(value, str) else "")
def test_every_name_exists(owner: str, name: str, row: NameRow) -> None:
    place: Any = getattr(assay, owner) if owner else assay
    made = {"OrtArenaCfg": (0, 0, 0, 0), "OrtMemoryInfo": ("Cpu",)}
    found = hasattr(place(*made[owner]) if owner in made else place, name)
    assert found or name in getattr(place, "__annotations__", {})
    assert row.note


REFUSED = [(owner, name) for owner, name, row in ALL if row.standing is Standing.REFUSED]


@pytest.mark.parametrize(("owner", "name"), REFUSED)
def test_what_is_refused_raises_when_it_is_used(owner: str, name: str) -> None:
    place: Any = getattr(assay, owner) if owner else assay
    found = getattr(place, name)
    use = partial(setattr, place(), name, "something") if isinstance(found, property) else found
    with pytest.raises(Unsupported, match=name) as caught:
        use()
    row = (CLASSES[owner] if owner else MODULE)[name]
    assert row.note in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", [name for owner, name in REFUSED if not owner])
def test_attributes_of_what_is_refused_raise_too(name: str) -> None:
    with pytest.raises(Unsupported, match=f"{name}.something"):
        getattr(assay, name).something()


def signatures() -> list[tuple[str, str]]:
    """What can be called here and in onnxruntime, where Python knows the names of its arguments."""
    found: list[tuple[str, str]] = []
    for owner, name, row in ALL:
        theirs = getattr(getattr(onnxruntime, owner) if owner else onnxruntime, name, None)
        if row.standing is not Standing.REFUSED and inspect.isroutine(theirs):
            try:
                inspect.signature(theirs)
            except ValueError:
                continue
            found.append((owner, name))
    return found


@pytest.mark.parametrize(("owner", "name"), signatures())
def test_arguments_have_the_same_names_in_the_same_order(owner: str, name: str) -> None:
    ours, theirs = (
        list(inspect.signature(getattr(getattr(module, owner) if owner else module, name)).parameters.values())
        for module in (assay, onnxruntime)
    )
    named = [each for each in theirs if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    assert [each.name for each in ours][: len(named)] == [each.name for each in named]
    assert [each.default is each.empty for each in ours[: len(named)]] == [each.default is each.empty for each in named]


def test_a_session_takes_the_same_arguments() -> None:
    ours, theirs = (list(inspect.signature(module.InferenceSession).parameters) for module in (assay, onnxruntime))
    assert ours[: len(theirs) - 1] == theirs[:-1]


def attributes(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in public(options) if not callable(getattr(options, name))}


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_options_have_the_same_defaults_and_keep_what_is_set(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name)(), getattr(assay, name)()
    kept = {
        key: value for key, value in attributes(theirs).items() if CLASSES[name][key].standing is not Standing.REFUSED
    }
    assert len(kept) > 4
    for attribute, default in kept.items():
        mine: Any = getattr(ours, attribute)
        assert (int(cast(Any, mine)) if isinstance(mine, enum.Enum) else mine) == (
            int(cast(Any, default)) if is_enumeration(type(default)) else default
        ), attribute
        other = {bool: True, int: 3, str: "word"}.get(type(default))
        if other is None:
            other = list(cast(Any, type(mine)))[-1]
        setattr(ours, attribute, other)
        assert getattr(ours, attribute) == other
        assert getattr(type(ours)(**{attribute: other}), attribute) == other
    with pytest.raises(AttributeError):
        ours.nonsense = 1


def test_every_exception_is_there_under_its_name() -> None:
    theirs = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    names = {
        name for name in dir(theirs) if inspect.isclass(kind := getattr(theirs, name)) and issubclass(kind, Exception)
    }
    assert set(EXCEPTIONS) == names
    ours = assay.capi.onnxruntime_pybind11_state
    assert all(issubclass(getattr(ours, name), AssayError) for name in names)


def test_dir_shows_the_public_names() -> None:
    names = {
        "AssayError",
        "Budget",
        "InferenceSession",
        "Limits",
        "Options",
        "Session",
        "SessionOptions",
        "__version__",
    }
    names |= {"backend", "explain", "load", "onnx_backend", "pipeline", "trace"}
    assert names | set(MODULE) <= set(dir(assay))
    assert names | set(MODULE) == set(assay.__all__)
    assert all(hasattr(assay, name) for name in assay.__all__)
    assert not any(name.startswith("_") and not name.endswith("__") for name in dir(assay))


def test_the_page_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "ortpage.py"))
    assert (ROOT / "docs" / "onnxruntime.md").read_text() == tool["table"](), "run python tools/ortpage.py"
