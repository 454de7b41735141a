"""The walks of docs/architecture.md: the files that each names are entered, in its order, when its example runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

PACKAGE = ROOT / "src" / "assay"
_PATH = re.compile(r"`((?:\w+/)+\w+\.py)`")


def walks() -> dict[str, str]:
    """The walks by the first words of their headings."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    part = text.split("## Three walks\n", 1)[1].split("\n## ", 1)[0]
    return {each.split(":", 1)[0]: each for each in part.split("### ")[1:]}


def steps(walk: str) -> list[str]:
    """The file that each step is about: the one that it begins with."""
    items = re.findall(r"^(\d+)\. `([^`]+)`", walk, re.MULTILINE)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    return [path for _, path in items]


ONNX = """
import numpy as np, onnx, onnx.numpy_helper, onnx.parser
import assay

model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
g (float[n, 8] x) => (float[n, 4] y) { h = MatMul (x, w)  y = Softmax (h) }''')
model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w"))
onnx.save(model, "model.onnx")
options = assay.SessionOptions(target="cpu", cache="cache")
with entered() as files:
    assay.load("model.onnx", options).run({"x": np.zeros((3, 8), np.float32)})
"""
TRAINING = """
import torch
import assay.runtime.torch.backend

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
with entered() as files:
    compiled = torch.compile(model, backend="assay", options={"frozen": True, "target": "cpu"})
    compiled(torch.ones(2, 8)).sum().backward()
"""
SWEEP = """
import assay.evidence.sweep.preload
from assay.cli import main
from assay.evidence.sweep import reproducers, supervise
from assay.evidence.sweep.faults import injected
from assay.evidence.sweep.worker import service
from assay.processes import Worker


class Here(Worker):
    '''A worker whose service runs in this process, where it can be watched.'''

    def ask(self, request, on_message=None, **_):
        return service(".")(request, on_message)


supervise.Worker = Here
reproducers._shows = lambda *_: True  # one more process
line = ["sweep", "-o", "records.jsonl", "--models", "Autoencoder (linear)", "--targets", "cpu", "--rounds", "0"]
with injected("lowering"), entered() as files:  # so that something is wrong
    try:
        main(line)
    except SystemExit:
        pass
"""
EXAMPLES = {"An ONNX model": ONNX, "A training step": TRAINING, "A case of a sweep": SWEEP}


def test_every_walk_has_an_example() -> None:
    assert list(walks()) == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_walk_names_a_file_once(name: str) -> None:
    named = _PATH.findall(walks()[name])
    assert [path for path in named if not (PACKAGE / path).is_file()] == []
    assert [path for path in set(named) if named.count(path) > 1] == []
    assert len(steps(walks()[name])) >= 10


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_walk_is_true(name: str, tmp_path: Path) -> None:
    saving = "open('files.json', 'w').write(json.dumps(files))"
    script = f"import json\nfrom entered import entered\n{EXAMPLES[name]}\n{saving}"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "ASSAY_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    files = json.loads((tmp_path / "files.json").read_text())
    named = steps(walks()[name])
    assert [step for step in named if step not in files] == []
    assert [file for file in files if file in named] == named
