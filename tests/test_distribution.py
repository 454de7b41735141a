"""The wheel and the sdist: each holds every file of the package, and works where there is no repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"

ONNX = """
import assay, numpy as np, onnx.numpy_helper, onnx.helper as h
x, y = (h.make_tensor_value_info(name, 1, ["n", 8]) for name in "xy")
w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
wiring = [("MatMul", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("Softmax", ["b"], ["y"])]
nodes = [h.make_node(*each) for each in wiring]
graph = h.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(w, "w")])
session = assay.InferenceSession(h.make_model(graph).SerializeToString())
fed = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
e = np.exp(np.maximum(fed @ w, 0).astype(np.float64))
np.testing.assert_allclose(session.run(None, {"x": fed})[0], e / e.sum(1, keepdims=True), rtol=1e-5)
ran = {node.target for node in session.explain().nodes}
assert ran == {"cpu"}, session.explain()
"""
TORCH = """
import torch
from assay.runtime.torch.accounts import account
from assay.runtime.torch.graphs import recording
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.LayerNorm(288))
x = torch.randn(2, 3, 8, 8)
with recording() as graphs:
    torch.testing.assert_close(torch.compile(model, backend="assay")(x), model(x))
ran = {target for graph in graphs for node in account(0, graph, "cpu", {}) for target in node.targets}
assert ran == {"cpu"}, ran
"""


def files(below: str) -> list[str]:
    """What the repository has there, new files too."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", below]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the sdist, built from a copy of what they are made of."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE", *files("src")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-c", BUILD, output], cwd=source, check=True, capture_output=True)
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is installed here but Assay itself, to be seen by other environments."""
    folder = tmp_path_factory.mktemp("packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "assay" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(
    request: pytest.FixtureRequest, built: dict[str, Path], packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An empty environment into which pip has put the one or the other."""
    folder = tmp_path_factory.mktemp(f"from-{request.param}")
    venv.create(folder / "venv", with_pip=True)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    (site / "others.pth").write_text(str(packages))
    # Some Pythons come with a setuptools that is too old to build anything.
    pip = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", built[request.param])
    run(folder, "python", *pip, PYTHONPATH=str(packages))
    return folder


def run(folder: Path, program: str, *arguments: str | Path, **more: str) -> str:
    """What a program of the environment prints; nothing that is set for these tests reaches it."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("ASSAY_", "PYTHON"))}
    environment = {**plain, "ASSAY_CACHE_DIR": str(folder / "cache"), **more}
    command = [folder / "venv" / "bin" / program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {str(PurePosixPath(name).relative_to("src")) for name in files("src")}


def test_the_sdist_has_all_that_a_wheel_is_made_of(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", *files("src")} <= held


def test_the_metadata_describes_the_package(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        found = message_from_bytes(archive.read(name))
    assert found["Name"] == PROJECT["name"]
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload(decode=True) == (ROOT / "README.md").read_bytes()
    assert sorted(found.get_all("Provides-Extra", [])) == sorted(PROJECT["optional-dependencies"])
    for each in found.get_all("Requires-Dist", []):
        operators = {one.operator for one in Requirement(each).specifier}
        assert operators == {">=", "<"}, f"no range: {each}"


def test_it_is_the_installed_package_that_is_imported(installed: Path) -> None:
    place = run(installed, "python", "-c", "import assay; print(assay.__file__)")
    assert Path(place.strip()).is_relative_to(installed)
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run(installed, "assay", "--version"))


def test_an_onnx_model_runs_on_cpu(installed: Path) -> None:
    run(installed, "python", "-c", ONNX)


def test_torch_compile_finds_the_backend(installed: Path) -> None:
    run(installed, "python", "-c", TORCH)


def test_a_report_is_made(installed: Path) -> None:
    run(installed, "assay", "report", ROOT / "evidence" / "small-cpu-train.jsonl.gz", "--output", "pages")
    assert "<style>" in (installed / "pages" / "index.html").read_text()


def test_the_pytest_plugin_is_there(installed: Path) -> None:
    assert "--assay-target" in run(installed, "python", "-m", "pytest", "--help")
