"""`assay.trace` and `assay trace`: every file parsed back and compared with what torch itself says."""

from __future__ import annotations

import csv
import json
import operator
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import assay
from assay.cli import main
from assay.cli.output import FAILED, OK, REFUSED, USAGE
from assay.errors import BadFeed, RunFailed
from assay.frontends.torch import registry
from assay.frontends.torch.decompositions import decompositions
from assay.ir import dtypes
from assay.runtime.torch import trace as torch_trace
from assay.runtime.torch.graphs import recording
from assay.runtime.torch.trace import Trace, file_names

HERE = __file__


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Net(nn.Module):
    """Static and symbolic sizes, an op with two results, one on a list."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, where = self.linear(x).relu().topk(2)
        return torch.cat([values, where.float() * float("inf") * 0, values], dim=1).view(x.shape[0], 3, 2)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def document(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Forward and backward, five rows, the number of rows symbolic."""
    torch._dynamo.reset()
    folder = tmp_path_factory.mktemp("trace") / "deep" / "out"
    return assay.trace(Net(), torch.randn(5, 4), out=folder, backward=True, dynamic=True)


# --- raw graphs


def test_the_files(traced: Trace) -> None:
    present = sorted(str(path.relative_to(traced.folder)) for path in traced.folder.rglob("*") if path.is_file())
    assert present == sorted(traced.files)
    assert {"raw/forward_0.json", "raw/backward_0.json", "fw_node_count.csv", "bw_node_count.csv"} <= set(present)
    assert {"profile/trace.json", "explanation.json"} <= set(present)
    assert document(traced.folder / "explanation.json") == json.loads(json.dumps(traced.explanation.to_json()))
    assert list(traced.folder.parent.iterdir()) == [traced.folder]


def test_a_raw_graph_is_the_graph_of_torch(traced: Trace) -> None:
    """The same model compiled once more: the nodes, what they read and what they make, one by one."""
    with recording() as graphs:
        torch.compile(Net(), backend="assay", dynamic=True)(torch.randn(5, 4)).sum().backward()
    for graph, name in zip(graphs, ("forward_0", "backward_0"), strict=True):
        raw = document(traced.folder / "raw" / f"{name}.json")
        calls = [n for n in graph.fx.graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
        assert (raw["graph"], raw["phase"]) == (name, graph.phase)
        assert [node["name"] for node in raw["nodes"]] == [call.name for call in calls]
        assert [node["op"] for node in raw["nodes"] if ".py." not in node["op"]] == [
            str(call.target) for call in calls if isinstance(call.target, torch._ops.OpOverload)
        ]
        placeholders = [n.name for n in graph.fx.graph.nodes if n.op == "placeholder"]
        assert [given["name"] for given in raw["inputs"]] == placeholders
        known = {given["name"] for given in raw["inputs"]}
        for node in raw["nodes"]:
            assert {given["name"] for given in node["inputs"]} <= known
            known |= {made["name"] for made in node["outputs"]}
        assert {name.removeprefix("%") for name in raw["outputs"] if name is not None} <= known


def test_raw_nodes_have_shapes_dtypes_attributes_and_lines(traced: Trace) -> None:
    raw = document(traced.folder / "raw" / "forward_0.json")
    (symbol,) = raw["symbols"]
    assert symbol["source"] == "x.size()[0]"
    (topk,) = [node for node in raw["nodes"] if node["op"] == "aten.topk.default"]
    rows_of = symbol["symbol"]
    assert topk["attrs"] == {"k": 2}
    assert [(made["name"], made["dtype"], made["shape"]) for made in topk["outputs"]] == [
        ("topk.0", "f32", [rows_of, 2]),
        ("topk.1", "i64", [rows_of, 2]),
    ]
    assert [made["bytes"] for made in topk["outputs"]] == [5 * 2 * 4, 5 * 2 * 8]
    (cat,) = [node for node in raw["nodes"] if node["op"] == "aten.cat.default"]
    assert [given["name"] for given in cat["inputs"]][0::2] == ["topk.0", "topk.0"]
    assert cat["file"] == HERE
    assert Path(HERE).read_text().splitlines()[cat["line"] - 1].strip().startswith("return torch.cat(")
    (addmm,) = [node for node in raw["nodes"] if node["op"] == "aten.addmm.default"]
    assert addmm["module"] == "self.linear"
    assert any(node["attrs"].get("other") == "inf" for node in raw["nodes"])


# --- statistics


@pytest.mark.parametrize(("side", "name"), [("fw", "forward_0"), ("bw", "backward_0")])
def test_counts_and_sizes_are_those_of_the_raw_graph(traced: Trace, side: str, name: str) -> None:
    nodes = document(traced.folder / "raw" / f"{name}.json")["nodes"]
    counts = Counter(node["op"] for node in nodes)
    listed = rows(traced.folder / f"{side}_node_count.csv")
    assert {row["op_type"]: int(row["count"]) for row in listed} == counts
    assert [int(row["count"]) for row in listed] == sorted(counts.values(), reverse=True)
    for what in ("input", "output"):
        place = traced.folder / f"{side}_total_{what}_size_dist"
        assert len(list(place.glob("*.csv"))) == len(list(place.glob("*.svg"))) == len(counts)
        for op, count in counts.items():
            sizes = rows(place / f"{op}.csv")
            assert {row["op_type"] for row in sizes} == {op}
            assert sum(int(row["nodes"]) for row in sizes) == count


def test_sizes_against_arithmetic(tmp_path: Path) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a + a).sin() @ b.sin()

    assay.trace(function, torch.ones(3, 5), torch.ones(5, 7), out=tmp_path / "out")
    read, made = (tmp_path / "out" / f"fw_total_{what}_size_dist" for what in ("input", "output"))

    def sizes(path: Path) -> list[tuple[int, int, int]]:
        return [(int(row["elements"]), int(row["bytes"]), int(row["nodes"])) for row in rows(path)]

    assert sizes(read / "aten.add.Tensor.csv") == [(30, 120, 1)]
    assert sizes(read / "aten.sin.default.csv") == sizes(made / "aten.sin.default.csv") == [(15, 60, 1), (35, 140, 1)]
    assert sizes(read / "aten.mm.default.csv") == [(50, 200, 1)]
    assert sizes(made / "aten.mm.default.csv") == [(21, 84, 1)]
    assert not list((tmp_path / "out").glob("bw*"))


def test_counts_are_those_of_make_fx(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1) @ x.mT).std(0).clamp(0, 1)

    x = torch.randn(3, 3)
    calls = [n for n in make_fx(function, decompositions())(x).graph.nodes if n.op == "call_function"]
    assay.trace(function, x, out=tmp_path / "out")
    mine = {row["op_type"]: int(row["count"]) for row in rows(tmp_path / "out" / "fw_node_count.csv")}
    assert mine == Counter(str(call.target) for call in calls if "detach" not in str(call.target))


def test_sizes_that_the_run_decides_are_empty(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        done = assay.trace(lambda x: x.nonzero() * 2, torch.tensor([0, 1, 2]), out=tmp_path / "out")
    assert done.explanation.breaks == ()
    (row,) = rows(done.folder / "fw_total_output_size_dist" / "aten.nonzero.default.csv")
    assert (row["elements"], row["bytes"], row["nodes"]) == ("", "", "1")
    picture = (done.folder / "fw_total_output_size_dist" / "aten.nonzero.default.svg").read_text()
    assert "unknown" in picture


def test_pictures_are_svg(traced: Trace) -> None:
    pictures = list(traced.folder.rglob("*.svg"))
    assert pictures
    for path in pictures:
        root = ElementTree.fromstring(path.read_text())
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        bars = rows(path.with_suffix(".csv"))
        rectangles = root.findall("{http://www.w3.org/2000/svg}rect")
        assert len(rectangles) == 1 + len({row["bytes"] for row in bars})
        title = root.findtext("{http://www.w3.org/2000/svg}title") or ""
        assert title.startswith(bars[0]["op_type"])


def test_many_sizes_share_bars() -> None:
    bars = torch_trace._bars(Counter(dict.fromkeys(range(100), 1)))
    assert bars[:3] == [("0 to 0", 1), ("1 to 1", 1), ("2 to 3", 2)]
    assert sum(count for _, count in bars) == 100


def test_file_names_are_safe_and_different() -> None:
    ops = ["aten.add.Tensor", "aten.ADD.tensor", "../../etc/passwd", "a b", "a/b", "...", "x" * 500]
    names = file_names(ops)
    assert names["aten.add.Tensor"] == "aten.add.Tensor"
    assert len({name.lower() for name in names.values()}) == len(ops)
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") for name in names.values()
    )
    assert all(name and not name.startswith(".") and len(name) < 130 for name in names.values())


# --- the profile


def test_the_profile_is_in_the_trace_event_format(traced: Trace) -> None:
    """The parts of the format that Perfetto and Chrome rely on."""
    data = document(traced.folder / "profile" / "trace.json")
    assert set(data) <= {"traceEvents", "displayTimeUnit", "otherData"}
    for event in data["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["ph"] in ("X", "C", "M")
        assert isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
        else:
            assert all(isinstance(value, int) for value in event["args"].values())


def slices(traced: Trace, track: str) -> list[dict[str, Any]]:
    events = document(traced.folder / "profile" / "trace.json")["traceEvents"]
    return [event for event in events if event["ph"] == "X" and event["cat"] == track]


def test_the_profile_has_every_op_that_ran_once(traced: Trace) -> None:
    assert [event["name"] for event in slices(traced, "graphs")] == ["forward_0", "backward_0"]
    nodes = traced.explanation.nodes
    ran = {(node.op, node.name) for node in nodes if node.status != "removed"}
    shown = {(event["name"], event["args"]["name"]) for event in slices(traced, "aten ops")}
    assert shown <= ran
    prepared = ran - shown  # what depends on parameters alone ran before
    assert all(op in ("aten.permute.default",) for op, _ in prepared)


def check_nesting(traced: Trace) -> None:
    """Slices of a track follow or hold each other."""
    for track in ("graphs", "aten ops", "core ops"):
        open_until: list[float] = []
        for event in sorted(slices(traced, track), key=lambda event: (event["ts"], -event["dur"])):
            start, end = event["ts"], event["ts"] + event["dur"]
            while open_until and open_until[-1] <= start + 0.002:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.002
            open_until.append(end)


def test_slices_nest(traced: Trace) -> None:
    check_nesting(traced)


def test_nested_work_lies_within_the_node_that_did_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that runs twice, with a node whose work is lowered when it runs."""

    def lowering(b: Any, n: Any, x: Any) -> Any:
        b.ints(b.cast(x, dtype=dtypes.i64), "the content")
        return b.sin(b.cos(x))

    monkeypatch.setitem(registry._TABLE, "aten.sinh.default", lowering)
    x = torch.tensor([0.0, 1.0, 2.0])
    options = {"cache": False}  # a lowering that is not the real one must not be kept
    done = assay.trace(lambda x: (x + 1).sinh() + 1, calls=[(x,), (x,)], out=tmp_path / "out", options=options)
    assert [node.status for node in done.explanation.nodes] == ["converted"] * 3
    assert len(slices(done, "graphs")) == 2
    core = slices(done, "core ops")
    assert [event["name"] for event in core] == ["add", "cos", "sin", "deferred", "add"] * 2
    inner, outer = core[2], core[3]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    check_nesting(done)


# --- folders


def test_a_folder_that_is_not_empty_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    def function(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("it ran")

    for force, words in ((False, "not empty"), (True, "more than a trace: mine.txt")):
        with pytest.raises(BadFeed, match=words):
            assay.trace(function, torch.ones(2), out=tmp_path, force=force)
    with pytest.raises(BadFeed, match="no folder"):
        assay.trace(function, torch.ones(2), out=tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_empty_folder_and_an_earlier_trace_are_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assay.trace(torch.sin, torch.ones(2), out=out)
    with pytest.raises(BadFeed, match="not empty"):
        assay.trace(torch.cos, torch.ones(2), out=out)
    assay.trace(lambda x: x.cos(), torch.ones(2), out=out, force=True)
    assert [row["op_type"] for row in rows(out / "fw_node_count.csv")] == ["aten.cos.default"]
    assert list(tmp_path.iterdir()) == [out]


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assay.trace(lambda x: x.sin(), torch.ones(2), out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}

    def broken(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(torch_trace, "profile", broken)
    for folder, force in ((out, True), (tmp_path / "other", False)):
        with pytest.raises(MemoryError):
            assay.trace(lambda x: x.cos(), torch.ones(2), out=folder, force=force)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert list(tmp_path.iterdir()) == [out]


def test_what_has_no_gradients_has_no_backward_graphs(tmp_path: Path) -> None:
    with pytest.raises(BadFeed, match="no output of the model requires a gradient"):
        assay.trace(lambda x: x.sin(), torch.ones(2), out=tmp_path / "out", backward=True)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_ops_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="compiled nothing"):
        assay.trace(lambda x: x, torch.ones(2), out=tmp_path / "out")


# --- the command line

SOURCE = """
import torch

def model():
    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)

def keyword():
    return (lambda x, scale: x * scale), [torch.ones(3)], {"scale": torch.ones(3)}

def nothing():
    return 3

def broken():
    raise ValueError("the factory's own")

def misfit():
    return torch.nn.Linear(4, 2), (torch.ones(3, 5),)
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "traced_here.py").write_text(SOURCE)

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["trace", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run


def test_a_factory_is_traced(call: Callable[..., Any], tmp_path: Path) -> None:
    code, shown, _ = call("traced_here:model", "-o", "out", "--backward", "--dynamic")
    assert code == OK
    assert "aten.addmm.default" in shown
    assert rows(tmp_path / "out" / "bw_node_count.csv")
    code, shown, _ = call("traced_here.py:keyword", "-o", "out", "--force", "--json", "-")
    assert code == OK
    data = json.loads(shown)
    assert data["explanation"]["ops"][0]["op"] == "aten.mul.Tensor"
    assert sorted(data["files"]) == sorted(
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    )


def test_an_exported_program_is_traced_with_its_example(call: Callable[..., Any], tmp_path: Path) -> None:
    program = torch.export.export(Net(), (torch.randn(5, 4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
    torch.export.save(program, tmp_path / "model.pt2")
    code, _, _ = call("model.pt2", "-o", "out", "--static")
    assert code == OK
    counts = {row["op_type"]: int(row["count"]) for row in rows(tmp_path / "out" / "fw_node_count.csv")}
    assert counts["aten.topk.default"] == counts["aten.cat.default"] == 1
    raw = document(tmp_path / "out" / "raw" / "forward_0.json")
    assert [5, 4] in [given["shape"] for given in raw["inputs"] if given["kind"] == "tensor"]


WRONG = {
    "not a factory": ("traced_here:nothing", USAGE, "returned no model with its arguments"),
    "no function": ("traced_here:modle", USAGE, "did you mean 'model'?"),
    "no module": ("no_such_module:model", USAGE, "there is no module 'no_such_module'"),
    "no file": ("none.py:model", USAGE, "there is no file 'none.py'"),
    "no program": ("none.pt2", USAGE, "there is no model file 'none.pt2'"),
    "another kind": ("model.onnx", USAGE, "give a .pt2 file or MODULE:FACTORY"),
    "its own error": ("traced_here:broken", REFUSED, "the factory's own"),
    "misfit": ("traced_here:misfit", FAILED, "does it run in torch?"),
}


@pytest.mark.parametrize(("model", "code", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_traced(call: Callable[..., Any], tmp_path: Path, model: str, code: int, words: str) -> None:
    got, _, told = call(model, "-o", "out")
    assert got == code
    assert words in told
    assert not (tmp_path / "out").exists()
