"""What the README shows works as written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from pages import ROOT, blocks

from assay.runtime.targets import chain_names, probe_target

README = ROOT / "README.md"
COMMANDS = [line for block in blocks(README, "sh") for line in block.text.splitlines() if "bin/assay" in line]
EXAMPLES = [block.text for block in blocks(README, "python")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works(command: str) -> None:
    words = shlex.split(command.partition("#")[0])
    _skip_without_targets(words)
    done = subprocess.run([sys.executable, "-m", "assay.cli", *words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def _skip_without_targets(words: list[str]) -> None:
    """What the README says of devices needs a driver or a library, which not every machine has."""
    named = words[words.index("--target") + 1] if "--target" in words else "reference"
    missing = {name: probe.reason for name in chain_names(named) if not (probe := probe_target(name)).present}
    if missing:
        pytest.skip(f"cannot be used here: {missing}")


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda text: next(line for line in text.splitlines() if "assay" in line)
)
def test_an_example_works(example: str) -> None:
    done = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_make_targets_that_are_named_exist() -> None:
    named = set(re.findall(r"`make (\w+)`|^make (\w+)", README.read_text(), re.MULTILINE))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {a or b for a, b in named} <= targets
