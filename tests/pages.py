"""Pages of the docs, run as they are written.

A page is for readers first, so its blocks say by their language alone what a test does with them:

- `python`: run, all blocks of a page in one interpreter. After "In `NAME`:" a block of any language is a file instead.
- `text`: what the block before it printed.
- `console`: lines after `$ ` are commands of a shell, in the folder of the page; what follows each is its output. A
  command that is meant to fail ends with `; echo "exit code $?"`.

In outputs `…` stands for anything: alone on a line for any lines, else for any part of a line. A number with a point
or an exponent was measured: any other will do. Runs of spaces are one.

`python tests/pages.py PAGE` runs a page in an empty folder and prints what it really prints.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"(?:In `([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MEASURED = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf)(?![\w.])")
_ANY = "…"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code; `file` is the file that the page makes of it, if it does, `line` where it stands."""

    language: str
    text: str
    line: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page says that something prints, and what it printed; `line` is where the page says so."""

    what: str
    line: int
    expected: str
    printed: str


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The blocks of a page in order, all or those of a language."""
    text = page.read_text()
    found = [
        Block(match[2], match[3], text.count("\n", 0, match.start(2)) + 1, match[1] or "")
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if language in (None, block.language)]


def block_under(page: Path, heading: str, language: str) -> str:
    """The first block of a language under a heading."""
    text = page.read_text()
    start = text.count("\n", 0, text.index(f"## {heading}\n")) + 1
    return next(block.text for block in blocks(page, language) if block.line > start)


def agrees(expected: str, printed: str) -> bool:
    """Whether an output is what a page shows, by the rules above."""
    lines = [_pattern(line) for line in expected.strip("\n").splitlines()]
    pattern = "".join(r"(?:.*\n)*" if line is None else line + r"\n" for line in lines)
    actual = "".join(_plain(line) + "\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, actual) is not None


def _plain(line: str) -> str:
    return _MEASURED.sub("#", " ".join(line.split()))


def _pattern(line: str) -> str | None:
    """A line as a regular expression; None for one that stands for any lines."""
    if line.strip() == _ANY:
        return None
    return ".*".join(re.escape(part) for part in _plain(line).split(_ANY))


def run(page: Path, folder: Path) -> list[Shown]:
    """Run a page in a folder, in a process of its own; what it shows beside what it printed."""
    out = folder / ".shown.json"
    command = [sys.executable, __file__, str(page), str(folder), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment(folder))
    if done.returncode:
        raise AssertionError(f"{page.name} does not run to its end:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return [Shown(**each) for each in json.loads(out.read_text())]


def _environment(folder: Path) -> dict[str, str]:
    """`assay`, `python` and `pip` are those of the tests; what pip installs goes into a folder beside the page's."""
    tools, site = folder / ".tools", folder / ".site"
    tools.mkdir()
    site.mkdir()
    for name, command in {"assay": "-m assay.cli", "pip": "-m pip", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (tools / name).chmod(0o755)
    if (ROOT / ".assets").exists():
        (folder / ".assets").symlink_to(ROOT / ".assets")
    pip = {"TARGET": str(site), "UPGRADE": "1", "NO_DEPS": "1", "NO_INDEX": "1", "NO_BUILD_ISOLATION": "0"}
    return {
        **{name: value for name, value in os.environ.items() if name != "ASSAY_TARGET"},
        **{f"PIP_{name}": value for name, value in pip.items()},
        "PATH": os.pathsep.join([str(tools), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT / "src")]),
    }


# --- in the process of a page


class _Page:
    """A page under way: the names of its interpreter, and what was shown."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.shown: list[Shown] = []
        self._printed: tuple[str, str] | None = None
        """What the last block of Python printed, if nothing has shown that yet."""

    def block(self, block: Block) -> None:
        if block.language == "text":
            assert self._printed is not None, f"line {block.line}: nothing was run that would print this"
            what, printed = self._printed
            self.shown.append(Shown(what, block.line, block.text, printed))
            self._printed = None
            return
        self.end()
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            self._python(block)
        elif block.language == "console":
            self._console(block)

    def end(self) -> None:
        """What was printed has to be shown."""
        if self._printed is not None and self._printed[1]:
            self.shown.append(Shown(self._printed[0], 0, "", self._printed[1]))
        self._printed = None

    def _python(self, block: Block) -> None:
        path = Path(f"line_{block.line}.py")
        path.write_text(block.text)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block.text, str(path), "exec"), self.names)
        self._printed = (f"the Python of line {block.line}", out.getvalue())

    def _console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            done = subprocess.run(
                ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            assert done.returncode == 0, f"line {block.line}: {command}\n{done.stdout}"
            self.shown.append(Shown(command, block.line, expected, done.stdout))


def _main(page: Path, folder: Path, out: Path | None) -> None:
    os.chdir(folder)
    sys.path.insert(0, "")
    under_way = _Page()
    for block in blocks(page):
        try:
            under_way.block(block)
        except BaseException:
            traceback.print_exc()
            sys.exit(f"{page.name}, line {block.line}")
    under_way.end()
    if out is not None:
        out.write_text(json.dumps([{key: getattr(each, key) for key in Shown.__slots__} for each in under_way.shown]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _main(*map(Path, sys.argv[1:4]))  # pyright: ignore[reportArgumentType]
    else:
        with tempfile.TemporaryDirectory() as _folder:
            for _each in run(Path(sys.argv[1]).resolve(), Path(_folder)):
                _sign = "==" if agrees(_each.expected, _each.printed) else "!="
                print(f"{_sign} {_each.line}: {_each.what}\n{_each.printed}")
