"""The pytest plugin: models of a test suite compiled, judged and recorded.

A test says `record_property("model_name", name)` and `record_property("assay", (model, inputs, outputs))` (or
`torch_ttnn` instead of `assay`). When its body has passed, the model is compiled for the target and compared with
what torch gives eagerly and in f64; the test fails if that does. `model.generate` in place of the model compiles what
`generate` calls. The marker `compilation_xfail` says that the compiled model is expected to fail: an unexpected pass
fails the test.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from assay.evidence.records import Record

KEYS = ("assay", "torch_ttnn")
"""Properties that hold a model, its inputs and its outputs."""
MARKER = "compilation_xfail"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("assay", "models compiled with Assay")
    group.addoption(
        "--assay-target",
        metavar="TARGET",
        help="compile recorded models for this target or chain (default: $ASSAY_TARGET, else cpu)",
    )
    group.addoption(
        "--assay-iteration",
        type=int,
        default=0,
        metavar="N",
        help="report the time of the N-th run of a compiled model, from 1 (default: the median of ten)",
    )
    group.addoption("--assay-records", metavar="FILE", help="append a record of each model to FILE")
    group.addoption("--assay-off", action="store_true", help="run the tests without compiling models")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}(reason=''): the compiled model fails; an unexpected pass is an error")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the body of a test: compile what it recorded."""
    try:
        result = yield
    finally:
        recorded = _taken(item)
    if recorded is not None and not item.config.getoption("--assay-off"):
        record = _measured(item, *recorded)
        item.user_properties.append(("assay_status", record.status))
        _write(item, record)
        _decide(item, record)
    return result


def _taken(item: pytest.Item) -> tuple[str, tuple[Any, Any, Any]] | None:
    """The recorded model by its name; models leave the properties, which reports turn into text."""
    found: list[Any] = [value for key, value in item.user_properties if key in KEYS]
    names = [str(value) for key, value in item.user_properties if key == "model_name"]
    item.user_properties[:] = [each for each in item.user_properties if each[0] not in KEYS]
    if not found:
        return None
    given = found[-1]
    if not isinstance(given, tuple) or len(cast("tuple[Any, ...]", given)) != 3:
        raise pytest.UsageError(f"{item.nodeid}: record a tuple (model, inputs, outputs)")
    return (names[-1] if names else item.name), cast("tuple[Any, Any, Any]", given)


def _measured(item: pytest.Item, name: str, recorded: tuple[Any, Any, Any]) -> Record:
    from assay.evidence.recorded import measure_recorded
    from assay.runtime.targets import default_target

    target, iteration = (item.config.getoption(option) for option in ("--assay-target", "--assay-iteration"))
    return measure_recorded(name, *recorded, target=str(target or default_target()), iteration=int(iteration or 0))


def _write(item: pytest.Item, record: Record) -> None:
    path = item.config.getoption("--assay-records")
    if path:
        from assay.evidence.records import append

        append(Path(str(path)), record)


def _decide(item: pytest.Item, record: Record) -> None:
    """Let the test fail, or fail as expected, if the compiled model did. A model that was not tried fails no less."""
    from assay.evidence.records.schema import NOT_TRIED

    marker = item.get_closest_marker(MARKER)
    if record.green and marker is not None:
        pytest.fail(f"the model compiles on {record.case.target} though it is marked {MARKER}", pytrace=False)
    if record.green:
        return
    told = f"{record.status} at {record.stage}"
    if record.cause is not None:
        told += f": {record.cause.error}: {record.cause.detail}"
    if marker is not None and record.status not in NOT_TRIED:
        pytest.xfail(_reason(marker) or told)
    pytest.fail(f"the model on {record.case.target}: {told}", pytrace=False)


def _reason(marker: pytest.Mark) -> str:
    named: Mapping[str, Any] = marker.kwargs
    return str(named.get("reason") or (marker.args[0] if marker.args else ""))
