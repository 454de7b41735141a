"""Reports of programs for a card: what they hold, and that Tenstorrent's own visualizer shows them in a browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from assay.ir.dtypes import f32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.ttnn import TtnnTarget
from assay.targets.ttnn.device_model import ModelledExecutable
from assay.targets.ttnn.library import Library
from assay.targets.ttnn.reports import ENVIRONMENT

VISUALIZER = Path(__file__).parents[2] / ".venv-visualizer" / "bin" / "ttnn-visualizer"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
)


@pytest.fixture(scope="module")
def report(library: Library, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelledExecutable]:
    """The report of a small program that has run twice."""
    place = tmp_path_factory.mktemp("reports")
    b, rng = Builder(), np.random.default_rng(0)
    x = b.input(TensorType(f32, (64, 256)))
    y = b.softmax(b.matmul(x, rng.normal(size=(256, 512)).astype(np.float32)), axis=-1)
    graph = b.finish("layer", [x], [b.gelu(y)])
    target = TtnnTarget("exact", DEFAULT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(place))
        made = target.compile(graph, {})
        assert isinstance(made, ModelledExecutable)
        for _ in range(2):
            made.submit([target.open().upload(np.zeros((64, 256), np.float32))])
    (folder,) = place.iterdir()
    return folder, made


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "db.sqlite")) as report:
        return report.execute(query).fetchall()


def test_a_report_has_every_call_and_its_memory_and_no_time(report: tuple[Path, ModelledExecutable]) -> None:
    folder, made = report
    assert folder.name == "layer-1"
    given, steps = made.taken.program.given, made.taken.program.steps
    names = [name for (name,) in rows(folder, "SELECT name FROM operations ORDER BY operation_id")]
    assert names == ["ttnn.allocate_tensor_on_device"] * len(given) + [f"ttnn.{step.op}" for step in steps]
    assert rows(folder, "SELECT DISTINCT duration FROM operations") == [(None,)]
    shapes = {shape for (shape,) in rows(folder, "SELECT shape FROM tensors")}
    assert {"Shape([64, 256])", "Shape([256, 512])", "Shape([64, 512])"} <= shapes
    told = [text for (text,) in rows(folder, "SELECT value FROM operation_arguments WHERE name = 'node'")]
    assert len(told) == len(names)
    assert any(str(text).startswith("softmax, ") for text in told)
    ((most,),) = rows(folder, "SELECT MAX(n) FROM (SELECT COUNT(*) n FROM buffers GROUP BY operation_id)")
    assert isinstance(most, int)
    assert most >= len(given) + 1


def test_a_picture_has_every_call_and_every_tensor(report: tuple[Path, ModelledExecutable]) -> None:
    folder, made = report
    text = (folder / "graph.dot").read_text()
    program = made.taken.program
    for at, step in enumerate(program.steps):
        assert f'call{at} [label="{step.op}\\n' in text
    assert text.count(" -> ") == sum(len(step.reads) for step in program.steps) + len(program.outputs)
    assert text.count("lightgrey") == 1, "the weight that stays"
    assert '[label="[64, 512]"]' in text
    if shutil.which("dot") is not None:
        subprocess.run(["dot", "-Tsvg", folder / "graph.dot"], check=True, capture_output=True)


def test_nobody_gets_a_report_who_wants_none(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    b = Builder()
    x = b.input(TensorType(f32, (32, 32)))
    made = TtnnTarget("exact", DEFAULT).compile(b.finish("g", [x], [b.neg(x)]), {})
    assert isinstance(made, ModelledExecutable)
    made.submit([TtnnTarget("exact", DEFAULT).open().upload(np.zeros((32, 32), np.float32))])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def address(report: tuple[Path, ModelledExecutable], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where the visualizer shows the report; it has a home of its own."""
    if not VISUALIZER.exists():
        pytest.skip("ttnn-visualizer is not installed (make visualizer)")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    said = tmp_path / "said"
    own = {"HOME": str(tmp_path), "BROWSER": "true", "USAGE_RECORDING_DISABLED": "true"}
    command = [str(VISUALIZER), "--profiler-path", str(report[0]), "--host", "127.0.0.1", "--port", str(port)]
    with said.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **own}, cwd=tmp_path, start_new_session=True
        )
        try:
            yield f"http://127.0.0.1:{port}", _instance(said, process)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def _instance(said: Path, process: subprocess.Popen[bytes]) -> str:
    """What the visualizer calls the report, once it is up."""
    for _ in range(240):
        found = re.search(r"Launching browser with url: \S+\?(instanceId=\w+)", said.read_text())
        if found is not None:
            return found.group(1)
        assert process.poll() is None, said.read_text()
        time.sleep(0.5)
    raise TimeoutError(said.read_text())


def test_the_visualizer_shows_it_in_a_browser(
    report: tuple[Path, ModelledExecutable], address: tuple[str, str]
) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    base, instance = address
    steps = report[1].taken.program.steps
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{base}/operations?{instance}")
        for at, step in enumerate(steps, 1 + len(report[1].taken.program.given)):
            page.get_by_text(re.compile(rf"^{at} ttnn\.{re.escape(step.op)}")).first.wait_for(timeout=60_000)
        page.goto(f"{base}/operations/{len(report[1].taken.program.given) + 1}?{instance}")
        page.get_by_text("Shape: [64, 256]").first.wait_for(timeout=60_000)
        page.goto(f"{base}/tensors?{instance}")
        page.get_by_text("[256, 512]").first.wait_for(timeout=60_000)
        browser.close()
    assert wrong == []
