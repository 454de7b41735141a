"""After `make zoo`, the libraries of the zoo can be imported as typed, by a Python that knows nothing of Assay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from assay.zoo.torch import MODELS

TOOL = Path(__file__).parents[2] / "tools" / "torchvision_operators.py"
LIBRARIES = sorted({model.library for model in MODELS.values()} - {"own"})
BROKEN = "import torch\nfrom . import extension\ntorch.ops.torchvision.nms\nextension._assert_has_ops()\n"
EXTENSION = "def _assert_has_ops():\n    raise RuntimeError\n"


def python(*arguments: str | Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    more = {} if path is None else {"PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **more})


@pytest.mark.parametrize(
    "statement",
    [
        *(f"import {library}" for library in LIBRARIES),
        "from transformers import GPT2LMHeadModel",
        "from torchvision.models.detection import fasterrcnn_resnet50_fpn",
        "from ultralytics.nn.tasks import DetectionModel",
        "from diffusers import UNet2DConditionModel",
    ],
)
def test_a_library_can_be_imported_as_typed(statement: str) -> None:
    done = python("-c", statement)
    assert done.returncode == 0, done.stderr


def test_a_detector_that_aligns_regions_runs() -> None:
    code = """
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
few = {"rpn_pre_nms_top_n_test": 50, "rpn_post_nms_top_n_test": 20}
model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, box_score_thresh=0.0, **few).eval()
assert len(model([torch.rand(3, 64, 64)])[0]["boxes"])
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def fake(folder: Path, module: str) -> Path:
    package = folder / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(module)
    (package / "extension.py").write_text(EXTENSION)
    return package / "extension.py"


def test_a_torchvision_without_its_operators_is_mended_once(tmp_path: Path) -> None:
    extension = fake(tmp_path, BROKEN)
    assert python("-c", "import torchvision", path=tmp_path).returncode
    assert python(TOOL, path=tmp_path).returncode == 0
    mended = extension.read_text()
    assert python("-c", "import torchvision", path=tmp_path).returncode == 0
    assert python(TOOL, path=tmp_path).returncode == 0
    assert extension.read_text() == mended != EXTENSION


def test_a_torchvision_that_works_is_left_alone(tmp_path: Path) -> None:
    extension = fake(tmp_path, "")
    assert python(TOOL, path=tmp_path).returncode == 0
    assert extension.read_text() == EXTENSION


def test_what_cannot_be_mended_is_said(tmp_path: Path) -> None:
    fake(tmp_path, "1 / 0")
    done = python(TOOL, path=tmp_path)
    assert done.returncode
    assert "could not be mended" in done.stderr
