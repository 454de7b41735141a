"""Re-make the files in requirements/ from pyproject.toml; `make lock` runs this in a venv that has uv.

lock.txt         resolved: the base dependencies, the extras onnx, report, server and ray, and the group dev
torch.txt        resolved: what the extra torch adds to lock.txt; on Linux with the libraries of CUDA
torch-cpu.txt    the same with a build of torch for CPUs, which needs none of these
peers.txt        resolved: what the extra peers adds to lock.txt and torch.txt
models.txt       the pins of the group models alone, because what they depend on is not wanted
zoo.txt          the pins of the group zoo alone, as for models
onnx-models.txt  those of the group onnx-models
ttnn.txt         those of the group ttnn, for Python 3.10 and 3.12
visualizer.txt   resolved: the group visualizer by itself

Every file holds exact versions for every Python that the project supports, the hashes of their wheels and sdists for
all platforms, and no address. Versions stay as they are while pyproject.toml allows; `--upgrade` takes the newest.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "requirements"
HEADER = "# Made by `make lock`. Install with: pip install --no-deps --require-hashes -r requirements/{name}\n"
# One version of a package serves all Pythons and platforms wherever there is such a version.
COMPILE = [
    *(Path(sys.executable).with_name("uv"), "pip", "compile", "-", "--quiet", "--no-config", "--no-header"),
    *("--universal", "--fork-strategy", "fewest"),
    *("--generate-hashes", "--no-annotate", "--no-strip-markers", *sys.argv[1:]),
]

Lock = dict[str, list[str]]
"""Pinned requirement, such as `rich==15.0.0` or `triton==3.7.1 ; sys_platform == 'linux'`, to its hashes."""


def locked(requirements: list[str], *options: str, python: str = "3.11") -> Lock:
    """The requirements and everything they bring along, in the versions of the present locks where these fit, for
    this Python and later ones."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "lock.txt")
        present = [pin for path in LOCKS.glob("*.txt") for pin in parsed(path.read_text())]
        output.write_text("\n".join(pin for pin in present if "+" not in pin))
        asked = "\n".join(requirements)
        command = [*COMPILE, *options, "--python-version", python, "--output-file", output]
        subprocess.run(command, input=asked, text=True, check=True)
        return parsed(output.read_text())


def parsed(text: str) -> Lock:
    entries = (line.split("--hash=") for line in text.replace("\\\n", " ").splitlines() if "==" in line)
    return {pin.strip(): sorted(each.strip() for each in hashes) for pin, *hashes in entries}


def without(lock: Lock, *others: Lock) -> Lock:
    return {pin: hashes for pin, hashes in lock.items() if not any(pin in other for other in others)}


def cpu_builds() -> Lock:
    """What cpu-builds.sha256 lists, by the pin that stands for all builds of a version, such as `torch==2.13.0`."""
    found: Lock = {}
    for line in (LOCKS / "cpu-builds.sha256").read_text().splitlines():
        if not line.startswith("#"):
            digest, file = line.split()
            found.setdefault(file.partition("+")[0].replace("-", "=="), []).append(f"sha256:{digest}")
    return found


def with_builds(lock: Lock, builds: Lock) -> Lock:
    return {pin: sorted({*hashes, *builds.get(pin, ())}) for pin, hashes in lock.items()}


def for_cpus(lock: Lock, builds: Lock) -> Lock:
    """The lock with nothing but the builds where there are such, and without what is wanted on Linux alone: CUDA."""
    chosen = {pin: hashes for pin, hashes in lock.items() if "linux" not in pin}
    return {f"{pin}+cpu" if pin in builds else pin: builds.get(pin, hashes) for pin, hashes in chosen.items()}


def write(name: str, lock: Lock) -> None:
    blocks = [" \\\n    ".join([pin, *(f"--hash={each}" for each in hashes)]) for pin, hashes in sorted(lock.items())]
    (LOCKS / name).write_text(HEADER.format(name=name) + "\n".join(blocks) + "\n")
    print(f"requirements/{name}: {len(lock)} packages, {sum(map(len, lock.values()))} hashes")


def main() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = found["project"], found["dependency-groups"]
    extras = project["optional-dependencies"]
    write("models.txt", locked(groups["models"], "--no-deps"))
    write("onnx-models.txt", locked(groups["onnx-models"], "--no-deps"))
    write("ttnn.txt", locked(groups["ttnn"], "--no-deps", python="3.10"))
    write("visualizer.txt", locked(groups["visualizer"]))
    write("zoo.txt", with_builds(locked(groups["zoo"], "--no-deps"), cpu_builds()))

    wanted = [each for name in ("onnx", "report", "server", "ray") for each in extras[name]]
    base = locked(project["dependencies"] + wanted + groups["dev"])
    write("lock.txt", base)

    torch = without(locked([*base, *extras["torch"]]), base)
    write("torch.txt", with_builds(torch, cpu_builds()))
    write("torch-cpu.txt", for_cpus(torch, cpu_builds()))
    write("peers.txt", without(locked([*base, *torch, *extras["peers"]]), base, torch))


if __name__ == "__main__":
    main()
