"""Why a case failed, as structured fields: from the stage, the exception and the innermost frame within Assay."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

import assay
from assay.errors import AssayError
from assay.evidence.reasons import first_line
from assay.evidence.records import Cause
from assay.evidence.records.causes import normalised

_ROOT = str(Path(assay.__file__).parent)
_STAGES = {"limits": "import", "verify": "lower", "feed": "run", "lookup": "run"}
"""Stages of Assay's errors that count as another stage of a case."""
_BEFORE = ("build", "baseline")
"""Stages before Assay's own: its errors there are about what is missing."""
_HARNESS = ("evidence", "cli")
"""Parts of Assay that look at models: they are not to blame."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+ in (?P<function>\S+)')
"""How faulthandler writes a frame."""


def cause_of(error: BaseException, stage: str) -> Cause:
    """The cause that an exception tells; an error of Assay's knows its stage and place itself."""
    inner = _innermost(error)
    known = isinstance(inner, AssayError)
    if known and stage not in _BEFORE:
        stage = _STAGES.get(inner.stage, inner.stage)
    detail = inner.message if isinstance(inner, AssayError) else first_line(inner)
    where = inner.where if isinstance(inner, AssayError) else ""
    frames = [(frame.filename, frame.name) for frame in traceback.extract_tb(inner.__traceback__)]
    component, frame = _place(frames)
    error_name = type(inner.__cause__ or inner).__name__ if known else type(inner).__name__
    return Cause(stage, component, error_name, normalised(detail), _op(where), frame, detail, where)


def cause_of_death(stage: str, error: str, detail: str, stack: str) -> Cause:
    """The cause where a process died or was ended; `stack` is what faulthandler wrote of it, innermost frame first."""
    frames = [(found["file"], found["function"]) for found in _FRAME.finditer(stack)]
    component, frame = _place(reversed(frames))
    return Cause(stage, component, error, normalised(detail), "", frame, detail)


def _innermost(error: BaseException) -> BaseException:
    """What a wrapper such as torch's BackendCompilerFailed was raised for."""
    inner = getattr(error, "inner_exception", None)
    return _innermost(inner) if isinstance(inner, BaseException) else error


def _place(frames: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """The component and the frame to blame, out of frames from the outermost to the innermost."""
    found = [(Path(file), name) for file, name in frames]
    own = [(file.relative_to(_ROOT), name) for file, name in found if file.is_relative_to(_ROOT)]
    own = [(file, name) for file, name in own if file.parts[0] not in _HARNESS]
    if own:
        file, name = own[-1]
        return ".".join(file.parts[:2]).removesuffix(".py"), f"{file}:{name}"
    packages = [(file.parts[file.parts.index("site-packages") + 1 :], name) for file, name in found if _installed(file)]
    if packages:
        parts, name = packages[-1]
        return ".".join(parts[:2]).removesuffix(".py"), f"{'/'.join(parts)}:{name}"
    return "", ""


def _installed(file: Path) -> bool:
    return "site-packages" in file.parts


def _op(where: str) -> str:
    """The op in the text of an origin, such as `aten.add.Tensor 'add_3' in layer1`."""
    word = where.partition(" ")[0]
    return word if re.fullmatch(r"[a-z_]\w*(\.\w+)+", word) else ""
