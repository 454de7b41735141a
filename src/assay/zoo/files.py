"""Where real models lie: files of installed packages, and those that `make assets` fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from assay.errors import NotFound
from assay.needs import missing

_CHECKOUT = Path(__file__).resolve().parents[3]


def package_file(package: str, name: str) -> Path:
    """A file inside an installed package, which itself is not imported; Missing if it is not there."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(folders[0]) / name if folders else None
    if path is None or not path.is_file():
        raise missing(package)
    return path


def asset(name: str) -> Path:
    """A file that `make assets` fetched, into .assets of the checkout or of the current folder; NotFound if not."""
    for root in (_CHECKOUT, Path.cwd()):
        path = root / ".assets" / name
        if path.is_file():
            return path
    raise NotFound(f"the model file '{name}' is not here", hint="run `make assets` in the checkout")
