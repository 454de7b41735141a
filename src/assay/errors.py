"""The errors of Assay: a small taxonomy that carries stage, node, origin and a hint."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

_LONGEST_MESSAGE, _LONGEST_PLACE = 2400, 300
"""Characters of a text that are shown; names in a model may be of any length."""


def _shown(text: str, longest: int) -> str:
    """A text as it may be printed: its middle left out if it is long, and without what a terminal would obey."""
    short = text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"
    return "".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in short)


class AssayError(Exception):
    """Base of every error that Assay raises on purpose.

    `stage` says what was being done, `where` names the node, value or file, `hint` says what to do
    (`usual_hint` if the raiser knows nothing better).
    """

    stage = "assay"
    usual_hint = ""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message, self.where, self.hint = message, where, hint or self.usual_hint
        parts = [f"{self.stage}: {_shown(message, _LONGEST_MESSAGE)}"]
        if where:
            parts.append(f"  at: {_shown(where, _LONGEST_PLACE)}")
        if self.hint:
            parts.append(f"  hint: {_shown(self.hint, _LONGEST_MESSAGE)}")
        super().__init__("\n".join(parts))

    def located(self, where: str) -> AssayError:
        """This error with a place, unless it has one."""
        return self if self.where else type(self)(self.message, where=where, hint=self.hint)


class ImportFailed(AssayError):
    """The source model is damaged, unsafe or not valid in its own format."""

    stage = "import"
    usual_hint = "the model is damaged or was written wrongly"


class LimitExceeded(ImportFailed):
    """The model asks for more than `assay.Limits` allows."""

    stage = "limits"
    usual_hint = "check the model, or pass other assay.Limits to the session"


class LowerFailed(AssayError):
    """A source op could not be turned into core ops."""

    stage = "lower"
    usual_hint = "check the node's inputs and attributes against the op's specification"


class VerifyFailed(AssayError):
    """A graph breaks an invariant of the IR."""

    stage = "verify"
    usual_hint = "a pass or a front end made an invalid graph: please report this"


class CompileFailed(AssayError):
    """A target could not compile a segment."""

    stage = "compile"


class RunFailed(AssayError, RuntimeError):
    """An op failed while the program ran."""

    stage = "run"
    usual_hint = "look at the node's inputs with session.observe"


class RunStopped(RunFailed):
    """A run was stopped before its end: its time was over, or somebody cancelled it."""

    usual_hint = "give it more time; the session can be used again"


class OutOfMemory(RunFailed):
    """A run would take more memory than it was given, or than there is."""

    usual_hint = "feed smaller inputs, or give it more memory"


class BadArgument(AssayError, ValueError):
    """What Assay was given or asked for does not fit."""

    stage = "argument"


class BadFeed(BadArgument):
    """The inputs given to a session do not fit the model."""

    stage = "feed"


class NotFound(BadArgument):
    """A target, peer, value name or file that was asked for does not exist."""

    stage = "lookup"


class FileMissing(NotFound, FileNotFoundError):
    """A file that was asked for does not exist."""


def missing_model(path: Path) -> FileMissing:
    """The error for a path that is no file: it does not exist, or is a folder."""
    if not os.path.isdir(path):
        return FileMissing(f"there is no model file '{path}'", hint="check the path")
    inside = [each.name for each in sorted(path.iterdir()) if each.suffix in (".onnx", ".pt2")]
    hint = f"such as {path / inside[0]}" if inside else "give the file: MODEL.onnx or MODEL.pt2"
    return FileMissing(f"'{path}' is a folder and no model file", hint=hint)


class Unsupported(AssayError, NotImplementedError):
    """Something that an API which Assay stands in for can do, and Assay cannot."""

    stage = "unsupported"
    usual_hint = "docs/onnxruntime.md lists what of ONNX Runtime there is here"


def hint_for(name: str, known: Iterable[str]) -> str:
    """What to try instead of a name that does not exist."""
    listed = list(known)
    close = difflib.get_close_matches(name, listed, 3)
    if close:
        return f"did you mean {' or '.join(repr(word) for word in close)}?"
    return f"choose from {', '.join(listed[:20])}{' …' if len(listed) > 20 else ''}" if listed else ""
