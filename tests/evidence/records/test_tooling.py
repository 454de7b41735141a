"""`assay evidence`: records are merged, compared, shown and validated, and nothing is lost silently."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from assay.cli import app
from assay.cli.output import DIFFERS, OK, USAGE
from assay.errors import BadFeed, NotFound
from assay.evidence.records import Case, Cause, Environment, OpUse, Output, Record, Speed, append, read
from assay.evidence.records.diff import BAD, KINDS, changes, relative_time, worst_error
from assay.evidence.records.files import inconsistency
from assay.evidence.records.merge import merged, write

ROOT = Path(__file__).parents[3]
CAUSE = Cause(stage="lower", component="frontends.torch", error="LowerFailed", message="no rule for #", op="aten.foo")


def record(name: str = "bert", date: str = "2026-11-01T00:00:00Z", **more: Any) -> Record:
    case = Case(kind="model", name=name, target=more.pop("target", "cpu"))
    return Record(**{"case": case, "environment": Environment(date=date), "status": "pass", "stage": "accuracy"} | more)


def failed(name: str = "bert", cause: Cause = CAUSE, **more: Any) -> Record:
    return record(name, **{"status": "fail_lower", "stage": "lower", "cause": cause} | more)


FALLBACK = record(status="pass_with_fallback", ops=(OpUse(op="aten.foo", count=1, fallback=1),))


def timed(median: float, eager: float) -> Record:
    return record(speed=Speed(median=median, eager_median=eager))


def off_by(error: float | None, allowed: float | None = 1e-6) -> Record:
    return record(outputs=(Output(name="y", type="f32[1]", ok=True, max_abs=error, allowed=allowed),))


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["evidence", *map(str, arguments)])


def written(path: Path, *records: Record) -> Path:
    for each in records:
        append(path, each)
    return path


def kinds(old: Record | None, new: Record | None, **more: float) -> list[str]:
    found = changes([old] if old else [], [new] if new else [], **more)
    return [change.kind for change in found]


def test_the_latest_record_of_each_case_is_kept_by_date_and_then_by_place() -> None:
    late, early = record(date="2026-11-02T00:00:00Z"), failed(date="2026-11-01T23:00:00+00:00")
    same = record(date="2026-11-02T01:00:00+01:00", notes=("later in the files",))
    assert merged([late, early]) == (late,)
    assert merged([early, late]) == (late,)
    assert merged([late, same]) == (same,)
    assert merged([record("b"), record("a"), record("a", target="ttnn")]) == (
        record("a"),
        record("a", target="ttnn"),
        record("b"),
    )


def test_a_date_that_is_none_is_the_earliest() -> None:
    assert merged([record(), failed(date="yesterday")]) == (record(),)


def test_merge_writes_one_file_and_tells_of_damage(tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl", record(), record("gpt"))
    second = written(tmp_path / "b.jsonl", failed(date="2026-11-03T00:00:00Z"))
    clean = invoke("merge", first, second, "-o", tmp_path / "clean.jsonl")
    assert clean.exit_code == OK, clean.output
    assert read(tmp_path / "clean.jsonl").records == (failed(date="2026-11-03T00:00:00Z"), record("gpt"))
    with second.open("a") as file:
        file.write('{"format": 1, "cut sh')
    torn = invoke("merge", first, second, "-o", tmp_path / "torn.jsonl", "--json", tmp_path / "result.json")
    assert torn.exit_code == DIFFERS
    assert f"{second}:2: " in torn.output
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["records"], told["cases"]) == (3, 2)
    assert [(each["file"], each["line"]) for each in told["damaged"]] == [(str(second), 2)]
    assert (tmp_path / "torn.jsonl").read_bytes() == (tmp_path / "clean.jsonl").read_bytes()


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    write(path, [record()])
    before = path.read_bytes()

    def dies() -> Any:
        yield record("gpt")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, dies())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["all.jsonl"]
    (tmp_path / "file").touch()
    with pytest.raises(NotFound):
        write(tmp_path / "file" / "all.jsonl", [record()])


def test_every_kind_of_change() -> None:
    other = Cause(
        stage="lower", component="frontends.torch", error="LowerFailed", message="no rule for #", op="aten.bar"
    )
    crash = failed(status="crash", stage="run")
    found = {
        "new": (None, record()),
        "gone": (record(), None),
        "fixed": (failed(), record()),
        "broken": (record(), failed()),
        "changed_cause": (failed(), failed(cause=other)),
        "changed_status": (failed(), crash),
        "less_supported": (record(), FALLBACK),
        "slower": (timed(1.0, 2.0), timed(1.3, 2.0)),
        "faster": (timed(1.3, 2.0), timed(1.0, 2.0)),
        "less_accurate": (off_by(1e-7), off_by(2.1e-7)),
        "more_accurate": (off_by(2.1e-7), off_by(1e-7)),
    }
    assert found.keys() == KINDS.keys()
    for kind, (old, new) in found.items():
        assert kinds(old, new) == [kind]


def test_a_pass_that_falls_back_now_is_worse() -> None:
    assert kinds(record(), FALLBACK) == ["less_supported"]
    assert kinds(FALLBACK, record()) == ["changed_status"]
    assert "less_supported" in BAD


def test_times_that_others_disturbed_are_not_compared() -> None:
    slow, quick = timed(3.0, 1.0), timed(1.0, 1.0)
    loud = replace(slow, speed=replace(slow.speed, others=0.2))
    crowded = replace(slow, environment=replace(slow.environment, workers=2))
    assert kinds(quick, slow) == ["slower"]
    assert kinds(quick, loud) == kinds(quick, crowded) == kinds(loud, quick) == []


def test_a_result_that_is_no_number_is_infinitely_wrong() -> None:
    nan = Output("y", "f32[1]", False, "NaN in one", 1, max_abs=0.0, nan=1, allowed=1e-6)
    wrong = failed(status="fail_accuracy", stage="accuracy", outputs=(nan,))
    assert worst_error(wrong) == float("inf")
    assert kinds(off_by(1e-7), wrong) == ["broken", "less_accurate"]


def test_compressed_files_are_written_whole_and_read(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl.gz"
    write(path, [record(), failed("gpt")])
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert read(path).records == (record(), failed("gpt"))
    before = path.read_bytes()
    with pytest.raises(BadFeed, match="nothing can be appended"):
        append(path, record())
    write(path, [record(), failed("gpt")])
    assert path.read_bytes() == before


def test_files_that_show_failures_go_along(tmp_path: Path) -> None:
    (tmp_path / "build" / "reproducers").mkdir(parents=True)
    (tmp_path / "build" / "reproducers" / "bert.py").write_text("shown")
    (tmp_path / "secret").write_text("elsewhere")
    shown = failed(reproducer="reproducers/bert.py")
    source = written(tmp_path / "build" / "r.jsonl", shown, failed("gpt", reproducer="../secret"))
    done = invoke("merge", source, "-o", tmp_path / "kept" / "deep" / "r.jsonl.gz")
    assert done.exit_code == OK, done.output
    assert (tmp_path / "kept" / "deep" / "reproducers" / "bert.py").read_text() == "shown"
    assert not (tmp_path / "kept" / "secret").exists()


@pytest.mark.parametrize("more", [{"breaks": 1}, {"gradient_count": 2, "gradients_right": 1}])
def test_a_pass_that_contradicts_itself_is_refused(more: dict[str, Any]) -> None:
    assert inconsistency(record(**more))
    assert not inconsistency(record())


def test_times_are_compared_in_parts_of_eagers_and_beyond_a_factor() -> None:
    assert kinds(timed(1.0, 1.0), timed(3.0, 3.0)) == []
    assert kinds(timed(1.0, 1.0), timed(1.0, 0.5)) == ["slower"]
    assert kinds(timed(1.0, 1.0), timed(1.1, 1.0)) == []
    assert kinds(timed(1.0, 1.0), timed(1.1, 1.0), slower=1.05) == ["slower"]
    assert kinds(timed(1.0, 1.0), record()) == []
    assert relative_time(record(speed=Speed(median=1.0, eager_median=0.0))) is None


def test_errors_are_compared_in_parts_of_what_is_allowed() -> None:
    assert kinds(off_by(1e-7), off_by(2e-7, allowed=2e-6)) == []
    assert kinds(off_by(1e-7), off_by(1.9e-7)) == []
    assert kinds(off_by(0.0), off_by(1e-9)) == ["less_accurate"]
    assert kinds(off_by(1e-9), off_by(0.0)) == ["more_accurate"]
    assert worst_error(off_by(1e-9, allowed=0.0)) == float("inf")
    assert worst_error(off_by(0.0, allowed=0.0)) == 0.0
    assert worst_error(off_by(None)) is None
    both = record(outputs=off_by(1e-7).outputs, gradients=off_by(5e-7).outputs)
    assert worst_error(both) == pytest.approx(0.5)


def test_figures_of_one_cause_do_not_change_it() -> None:
    moved = Cause(
        **{name: getattr(CAUSE, name) for name in CAUSE.__struct_fields__} | {"where": "node 12", "detail": "5"}
    )
    assert kinds(failed(), failed(cause=moved)) == []


def test_diff_tells_and_ends_by_whether_the_new_run_is_worse(tmp_path: Path) -> None:
    old = written(tmp_path / "old.jsonl", record(), failed("gpt"))
    new = written(tmp_path / "new.jsonl", failed(), record("gpt"))
    worse = invoke("diff", old, new, "--json", tmp_path / "diff.json")
    assert worse.exit_code == DIFFERS
    assert "1 broken, 1 fixed" in worse.output
    assert "aten.foo" in worse.output
    told = json.loads((tmp_path / "diff.json").read_text())["changes"]
    assert [(each["kind"], each["case"]["name"]) for each in told] == [("broken", "bert"), ("fixed", "gpt")]
    same = invoke("diff", old, old)
    assert (same.exit_code, same.output.strip()) == (OK, "nothing changed")
    better = written(tmp_path / "better.jsonl", record(), record("gpt"))
    assert invoke("diff", old, better).exit_code == OK


def test_show_lists_all_and_tells_everything_of_one(tmp_path: Path) -> None:
    wrong = Output(name="logits", type="f32[1, 10]", ok=False, max_abs=0.5, allowed=1e-6, complaint="too far")
    bad = failed(
        "gpt",
        status="fail_accuracy",
        stage="accuracy",
        outputs=(wrong,),
        ops=(OpUse(op="aten.foo", count=2, converted=1, fallback=1, reasons=("no kernel",)),),
        speed=Speed(median=0.25, runs=3),
    )
    file = written(tmp_path / "all.jsonl", record(), bad, record(target="ttnn"))
    listed = invoke("show", file)
    assert listed.exit_code == OK
    assert len(listed.output.strip().splitlines()) == 4
    assert len(invoke("show", file, "--target", "ttnn").output.strip().splitlines()) == 2
    whole = invoke("show", file, "gpt").output
    for text in ("fail_accuracy", "logits", "too far", "no kernel", "median 0.25", "LowerFailed: no rule for #"):
        assert text in whole
    data = json.loads(invoke("show", file, "gpt", "--json", "-").output)
    assert data["records"][0]["case"]["name"] == "gpt"
    unknown = CliRunner().invoke(app, ["evidence", "show", str(file), "gtp"])
    assert isinstance(unknown.exception, NotFound)
    assert "gpt" in unknown.exception.hint
    assert isinstance(invoke("show", file, "--target", "gpu").exception, NotFound)


def test_validate_names_every_damaged_line(tmp_path: Path) -> None:
    file = written(tmp_path / "all.jsonl", record())
    assert invoke("validate", file).exit_code == OK
    bad = json.loads(file.read_text()) | {"status": "great"}
    file.write_text(file.read_text() + json.dumps(bad) + "\n{}\n" + json.dumps(bad | {"status": "crash"}) + "\n")
    found = invoke("validate", file, "--json", tmp_path / "result.json")
    assert found.exit_code == DIFFERS
    assert [f"{file}:{line}: " in found.output for line in (1, 2, 3, 4)] == [False, True, True, True]
    assert json.loads((tmp_path / "result.json").read_text())["valid"] == 1


@pytest.mark.parametrize("command", ["validate", "show"])
def test_no_records_are_an_error(tmp_path: Path, command: str) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    found = invoke(command, empty)
    assert found.exit_code != OK
    with pytest.raises(SystemExit) as ended:
        __import__("assay.cli").cli.main(["evidence", command, str(empty)])
    assert ended.value.code == USAGE


def test_the_page_of_the_records_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "recordtable.py"))
    assert (ROOT / "docs" / "records.md").read_text() == tool["page"](), "run python tools/recordtable.py"


def test_the_page_has_every_field() -> None:
    text = (ROOT / "docs" / "records.md").read_text()
    for kind in (Record, Case, Cause, Environment, OpUse, Output, Speed):
        section = text[text.index(f"## {kind.__name__}\n") :].split("\n## ")[0]
        assert [f"| `{name}` |" in section for name in kind.__struct_fields__] == [True] * len(kind.__struct_fields__)
