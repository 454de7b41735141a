"""The locks: what pyproject.toml asks for is in them, in every official build, and nothing without a hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
FOUND = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = FOUND["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = FOUND["dependency-groups"]
BASE = FOUND["project"]["dependencies"]
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = ("linux", "darwin")


def pins(*names: str) -> dict[str, str]:
    """Every line of these locks without its hashes, and the hashes."""
    text = "".join((LOCKS / f"{name}.txt").read_text() for name in names).replace("\\\n", " ")
    lines = [line.partition("--hash") for line in text.splitlines() if not line.startswith("#")]
    return {pin.strip(): mark + hashes for pin, mark, hashes in lines}


def installed(names: tuple[str, ...], python: str, system: str) -> dict[str, str]:
    """What these locks install there: versions by name."""
    here = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    here |= {"sys_platform": system, "platform_machine": "arm64" if system == "darwin" else "x86_64"}
    chosen = [each for each in map(Requirement, pins(*names)) if each.marker is None or each.marker.evaluate(here)]
    versions = [(canonicalize_name(each.name), str(each.specifier).removeprefix("==")) for each in chosen]
    assert len(versions) == len(dict(versions)), "a package twice"
    return dict(versions)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (BASE + [each for extra in ("onnx", "report", "server", "ray") for each in EXTRAS[extra]], ("lock",)),
        (GROUPS["dev"], ("lock",)),
        (EXTRAS["torch"] + EXTRAS["opinfo"], ("lock", "torch")),
        (EXTRAS["torch"] + EXTRAS["opinfo"], ("lock", "torch-cpu")),
        (EXTRAS["peers"], ("lock", "torch", "peers")),
        (GROUPS["models"], ("models",)),
        (GROUPS["onnx-models"], ("onnx-models",)),
        (GROUPS["zoo"], ("zoo",)),
        (GROUPS["visualizer"], ("visualizer",)),
        (EXTRAS["zoo"], ("torch", "zoo")),
    ],
    ids=[
        "base",
        "dev",
        "torch",
        "torch for CPUs",
        "peers",
        "models",
        "ONNX models",
        "zoo",
        "visualizer",
        "zoo for users",
    ],
)
def test_what_is_asked_for_is_locked(asked: list[str], names: tuple[str, ...], python: str, system: str) -> None:
    versions = installed(names, python, system)
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("python", ["3.10", "3.12"])
def test_the_library_of_tenstorrent_is_locked_for_the_pythons_that_it_has(python: str) -> None:
    versions = installed(("ttnn",), python, "linux")
    assert {f"{name.replace('-', '_')}=={version}" for name, version in versions.items()} == set(GROUPS["ttnn"])


@pytest.mark.parametrize("name", [path.stem for path in LOCKS.glob("*.txt")])
def test_every_pin_is_exact_and_has_hashes(name: str) -> None:
    assert pins(name)
    for pin, hashes in pins(name).items():
        assert re.match(r"[\w.-]+==[\w.]+(\+cpu)?( ; |$)", pin), pin
        assert re.fullmatch(r"(--hash=sha256:[0-9a-f]{64}\s*)+", hashes), pin


def test_builds_for_cpus_are_as_good_as_those_of_pypi() -> None:
    lines = [line.split() for line in (LOCKS / "cpu-builds.sha256").read_text().splitlines() if line[0] != "#"]
    locked = pins("torch", "zoo")
    for digest, file in lines:
        name, version, *_ = file.split("-")
        assert digest in locked.get(f"{name}=={version.removesuffix('+cpu')}", ""), f"not of the locked version: {file}"
    (version,) = {file.split("-")[1] for _, file in lines if file.startswith("torch-")}
    only = re.findall("[0-9a-f]{64}", pins("torch-cpu")[f"torch=={version}"])
    assert sorted(only) == sorted(digest for digest, file in lines if file.startswith("torch-"))
    for name in ("torch", "torchvision"):
        versions = {file.split("-")[2] for _, file in lines if file.startswith(f"{name}-")}
        assert versions == {f"cp{python.replace('.', '')}" for python in PYTHONS}


@pytest.mark.parametrize("python", PYTHONS)
def test_libraries_of_cuda_come_with_the_build_that_needs_them(python: str) -> None:
    systems = [(lock, system) for lock in ("torch", "torch-cpu") for system in SYSTEMS]
    with_cuda = [each for each in systems if "nvidia-cudnn-cu13" in installed((each[0],), python, each[1])]
    assert with_cuda == [("torch", "linux")]
