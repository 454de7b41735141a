"""docs/adding-an-op.md: its files in a copy of the package, its example and the tests that it promises."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, block_under, blocks

from assay.ops import CORE

PAGE = ROOT / "docs" / "adding-an-op.md"
FILES = {block.file.removeprefix("src/"): block.text for block in blocks(PAGE) if block.file}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files of the page where the page puts them."""
    copy = tmp_path_factory.mktemp("adding")
    shutil.copytree(ROOT / "src" / "assay", copy / "assay")
    for path, text in FILES.items():
        assert not (copy / path).exists()
        (copy / path).write_text(text)
    return copy


def python(source: Path, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )


def test_the_op_is_new() -> None:
    """Else the page would show nothing."""
    assert list(FILES) == ["assay/ops/definitions/capsules.py", "assay/frontends/onnx/ops/capsules.py"]
    assert "squash" not in CORE


def test_the_example_runs_on_both_targets_as_numpy_says(source: Path, tmp_path: Path) -> None:
    done = python(source, "-c", block_under(PAGE, "Trying it", "python"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == block_under(PAGE, "Trying it", "text")


def test_the_derived_tests_find_the_op_and_pass(source: Path) -> None:
    command = shlex.split(block_under(PAGE, "The tests that come for free", "console"))
    done = python(source, *command[1:], "-v", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    passed = set(re.findall(r"::(\w+)\[(?:cpu-)?squash\] PASSED", done.stdout))
    assert passed >= {
        "test_types_are_right_at_every_level_of_knowledge",
        "test_decomposition_agrees_with_the_reference",
        "test_decomposition_works_when_dims_are_symbols",
        "test_exact_mode_is_precise_mode_rounded",
        "test_every_dtype_has_a_sample",
        "test_results_are_those_of_the_reference",
        "test_gradients_are_finite_differences",
    }


def test_the_op_table_would_list_it(source: Path) -> None:
    tool = str(ROOT / "tools" / "optable.py")
    done = python(source, "-c", f"import runpy; print(runpy.run_path({tool!r})['table']())")
    assert done.returncode == 0, done.stderr
    assert "| `squash` | composite | `(x: T; axis) → T` | T: floats | accumulated | Vectors along" in done.stdout
