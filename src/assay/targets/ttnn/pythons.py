"""Where the library is: a Python that has it, and the folder that it is installed in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ENVIRONMENT = "ASSAY_TTNN_PYTHON"
"""The variable with the Python that has the library."""
_CHECKOUT = Path(__file__).parents[4]
_ASK = "import importlib.util as u; f = u.find_spec('ttnn'); print(f.submodule_search_locations[0] if f else '')"
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Installed:
    """An interpreter and the folder of its ttnn; without one, `reason` says what is missing."""

    python: str = ""
    folder: Path = Path()
    reason: str = ""


def installed(environment: Mapping[str, str] = os.environ) -> Installed:
    """The library: of `$ASSAY_TTNN_PYTHON` if that is set, else of this Python, else of what `make ttnn` made."""
    named = environment.get(ENVIRONMENT, "")
    if named:
        found = _asked(named)
        return found if not found.reason else Installed(reason=f"{ENVIRONMENT}: {found.reason}")
    for python in _usual():
        found = _asked(python)
        if not found.reason:
            return found
    return Installed(reason=f"no Python with ttnn: run `make ttnn`, or name one in {ENVIRONMENT}")


def _usual() -> Iterator[str]:
    yield sys.executable
    made = _CHECKOUT / ".venv-ttnn" / "bin" / "python"
    if made.exists():
        yield str(made)


@cache
def _asked(python: str) -> Installed:
    """What an interpreter says of its ttnn. It looks from a folder where nothing lies that could be taken for it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/", env=kept
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Installed(reason=f"{python} cannot be run ({error})")
    if done.returncode:
        return Installed(reason=f"{python} cannot be run (it ended with {done.returncode})")
    place = done.stdout.strip()
    return Installed(python, Path(place)) if place else Installed(reason=f"{python} has no ttnn")
