"""Print the first interpreter of one of these versions that runs: `python tools/find_python.py 3.12 3.10`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path.home()
FOLDERS = {
    Path(os.environ.get("PYENV_ROOT", HOME / ".pyenv")) / "versions": "{version}*/bin/python",
    Path(os.environ.get("UV_PYTHON_INSTALL_DIR", HOME / ".local/share/uv/python")): "cpython-{version}*/bin/python3",
    Path("/opt/python"): "cp{tag}-cp{tag}/bin/python",
}
"""Where version managers put interpreters."""


def candidates(version: str) -> Iterator[str]:
    """Interpreters that should be of this version: on the path first, then those of version managers."""
    found = shutil.which(f"python{version}")
    if found is not None:
        yield found
    for folder, pattern in FOLDERS.items():
        yield from map(str, sorted(folder.glob(pattern.format(version=version, tag=version.replace(".", "")))))


def runs(python: str, version: str) -> bool:
    """Whether an interpreter is of this version; names on the path may lead nowhere."""
    ask = [python, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def main(versions: list[str]) -> None:
    for version in versions:
        for python in candidates(version):
            if runs(python, version):
                print(python)
                return
    sys.exit(
        f"no Python {' or '.join(versions)} is to be found, neither on the path nor in {', '.join(map(str, FOLDERS))}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
