"""`assay.load`: a session for a model of whatever kind."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import ImportFailed, LimitExceeded, NotFound
from assay.limits import Limits
from assay.runtime.session import Memory, Session, SessionOptions

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_EXPORT = "export it: torch.export.save(torch.export.export(model, arguments), 'model.pt2')"


def load(source: str | Path | ExportedProgram, options: SessionOptions | None = None) -> Session:
    """A session for an ONNX file, a `.pt2` file of `torch.export`, or an exported program itself.

    Inputs and outputs have the names of the model. Of a program they are those of the arguments and the keys of the
    results (`output`, `output_0` … where it returns no dictionary); `session.signature` nests them as the source does.
    Buffers that the program changes are the session's `state`.
    """
    chosen = options or SessionOptions()
    if not isinstance(source, str | Path):
        return _of_program(source, chosen)
    path = Path(source)
    if not path.is_file():
        raise NotFound(f"there is no model file '{path}'", hint="check the path")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _unknown(path)
    return reader(path, chosen)


def _of_onnx(path: Path, options: SessionOptions) -> Session:
    from assay.frontends.onnx import load as load_onnx

    return Session(load_onnx(path, options.limits), options)


def _of_file(path: Path, options: SessionOptions) -> Session:
    _check_size(path, options.limits)
    _require_torch()
    from assay.frontends.torch.archive import read_program

    return _of_program(read_program(path), options)


def _of_program(program: Any, options: SessionOptions) -> Session:
    _require_torch()
    from torch.export import ExportedProgram

    from assay.frontends.torch.exported import import_program

    if not isinstance(program, ExportedProgram):
        raise ImportFailed(
            f"a {type(program).__name__} is no model that can be loaded",
            hint="give a path, or a program: torch.export.export(model, arguments)",
        )
    found = import_program(program)
    memory = Memory(found.state, found.renewals)
    return Session(found.graph, options, facts=found.facts, memory=memory, signature=found.signature)


_READERS: dict[str, Callable[[Path, SessionOptions], Session]] = {".onnx": _of_onnx, ".pt2": _of_file}

MODEL_SUFFIXES = tuple(_READERS)
"""What the names of files that `load` takes end in."""


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise NotFound("torch is not installed", hint="`make torch` installs it")


def _check_size(path: Path, limits: Limits) -> None:
    if path.stat().st_size > limits.model_bytes:
        raise LimitExceeded(f"'{path}' has more than {limits.model_bytes} bytes", hint="raise Limits.model_bytes")


def _unknown(path: Path) -> ImportFailed:
    """What a file that has no graph to run is, as far as it shows."""
    inside = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    if any("/code/" in name for name in inside):
        return ImportFailed(f"'{path}' is a TorchScript archive, which is not taken", hint=_EXPORT)
    if any(name.endswith("/data.pkl") for name in inside) or path.suffix in (".pt", ".pth", ".bin", ".safetensors"):
        return ImportFailed(f"'{path}' holds weights and no graph", hint=f"build the model, load them, and {_EXPORT}")
    return ImportFailed(f"'{path}' is of no kind that is known", hint=f"give {' or '.join(_READERS)}")
