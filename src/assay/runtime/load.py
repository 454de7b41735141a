"""`assay.load`: a session for a model of whatever kind."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, ImportFailed, Unsupported, missing_model
from assay.ir.facts import Fact
from assay.ir.graph import Graph
from assay.ir.types import Type
from assay.limits import DEFAULT, Limits
from assay.needs import explained
from assay.runtime.options import SessionOptions, options_from
from assay.runtime.ort.edits import NO_EDITS, Edits
from assay.runtime.session import Memory, Session

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_EXPORT = "export it: torch.export.save(torch.export.export(model, arguments), 'model.pt2')"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model as its front end read it: what a session is made of."""

    graph: Graph
    facts: Sequence[Fact] | None = None
    memory: Memory = field(default_factory=Memory)
    signature: Any = None

    @property
    def inputs(self) -> dict[str, Type]:
        """The types of the inputs that a run must be given, by name."""
        pairs = zip(self.graph.input_names, self.graph.inputs, strict=True)
        return {name: value.type for name, value in pairs if name not in self.memory.initial}

    def session(self, options: SessionOptions | None = None) -> Session:
        """The model on a target."""
        return Session(self.graph, options, facts=self.facts, memory=self.memory, signature=self.signature)


def load(source: str | Path | ExportedProgram, options: SessionOptions | None = None) -> Session:
    """A session for an ONNX file, a `.pt2` file of `torch.export`, or an exported program itself.

    Inputs and outputs have the names of the model. Of a program they are those of the arguments and the keys of the
    results (`output`, `output_0` … where it returns no dictionary); `session.signature` nests them as the source does.
    Buffers that the program changes are the session's `state`.
    """
    chosen = options_from(options)
    if chosen.enable_profiling:
        raise Unsupported(
            "`assay.load` writes no profiles",
            hint="assay.InferenceSession(path, options) does; session.profile(feeds) tells the time of each node",
        )
    return read(source, chosen.limits, chosen.edits).session(chosen)


def read(source: str | Path | ExportedProgram, limits: Limits = DEFAULT, edits: Edits = NO_EDITS) -> Loaded:
    """What `load` makes a session of, not lowered yet. Only ONNX models take `edits`."""
    with explained():
        if not isinstance(source, str | Path):
            _refuse(edits)
            return _of_program(source)
        path = Path(source)
        if not os.path.isfile(path):
            raise missing_model(path)
        reader = _READERS.get(path.suffix.lower(), _of_any)
        return reader(path, limits, edits)


def _refuse(edits: Edits) -> None:
    if edits:
        raise Unsupported("free dimensions and initializers are those of ONNX models")


def _of_onnx(path: Path, limits: Limits, edits: Edits) -> Loaded:
    from assay.frontends.onnx import import_model, read_model

    model, folder = read_model(path, limits)
    edits.apply(model)
    return Loaded(import_model(model, folder, limits))


def _of_file(path: Path, limits: Limits, edits: Edits) -> Loaded:
    _refuse(edits)
    from assay.frontends.torch.archive import read_program

    program = read_program(path, limits)
    try:
        return _of_program(program, shared=True)
    except AssayError as error:
        raise error.located(str(path)) from error.__cause__


def _of_program(program: Any, *, shared: bool = False) -> Loaded:
    from torch.export import ExportedProgram

    from assay.frontends.torch.exported import import_program

    if not isinstance(program, ExportedProgram):
        raise ImportFailed(
            f"a {type(program).__name__} is no model that can be loaded",
            hint="give a path, or a program: torch.export.export(model, arguments)",
        )
    found = import_program(program, shared=shared)
    return Loaded(found.graph, found.facts, Memory(found.state, found.renewals), found.signature)


_READERS: dict[str, Callable[[Path, Limits, Edits], Loaded]] = {".onnx": _of_onnx, ".pt2": _of_file}


def _of_any(path: Path, limits: Limits, edits: Edits) -> Loaded:
    """A file whose name says nothing is taken for ONNX, unless it is one of torch's without a graph to run."""
    from assay.frontends.checkpoint import is_checkpoint

    inside = _names_in(path)
    if any("/code/" in name for name in inside):
        raise ImportFailed(f"'{path}' is a TorchScript archive, which is not taken", hint=_EXPORT)
    if any(name.endswith("/data.pkl") for name in inside) or is_checkpoint(path):
        raise ImportFailed(f"'{path}' holds weights and no graph", hint=f"build the model, load them, and {_EXPORT}")
    return _of_onnx(path, limits, edits)


def _names_in(path: Path) -> list[str]:
    """What a zip file holds; nothing if it is none, or a damaged one."""
    with suppress(zipfile.BadZipFile, NotImplementedError, UnicodeError, OSError), zipfile.ZipFile(path) as archive:
        return archive.namelist()
    return []
