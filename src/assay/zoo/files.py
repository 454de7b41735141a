"""Where real models lie: files of installed packages, and those that `make assets` fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from assay.errors import NotFound
from assay.needs import missing

_CHECKOUT = Path(__file__).resolve().parents[3]


def package_file(package: str, name: str) -> Path:
    """A file inside an installed package, which itself is not imported; Missing if it is not there."""
    path = find_package_file(package, name)
    if path is None:
        raise missing(package)
    return path


def asset(name: str) -> Path:
    """A file that `make assets` fetched, into .assets of the checkout or of the current folder; NotFound if not."""
    path = fetched(name)
    if path is None:
        raise NotFound(f"the model file '{name}' is not here", hint="run `make assets` in the checkout")
    return path


def model_file(name: str) -> Path:
    """A file named from its package's folder on, of the environment or one that make fetched; NotFound if not there."""
    package, _, inside = name.partition("/")
    path = find_package_file(package, inside) or fetched(f"onnx/{name}") or fetched(name)
    if path is None:
        hint = "run `make assets onnxmodels` in the checkout"
        raise NotFound(f"the model file '{name}' is not here", hint=hint)
    return path


def find_package_file(package: str, name: str) -> Path | None:
    """A file inside an installed package, which itself is not imported; None if it is not there."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(folders[0]) / name if folders else None
    return path if path is not None and path.is_file() else None


def fetched(name: str) -> Path | None:
    """A file that make fetched, into .assets of the checkout or of the current folder; None if it is not there."""
    places = (root / ".assets" / name for root in (_CHECKOUT, Path.cwd()))
    return next((path for path in places if path.is_file()), None)
