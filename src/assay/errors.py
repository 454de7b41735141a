"""The errors of Assay: a small taxonomy that carries stage, node, origin and a hint."""

from __future__ import annotations


class AssayError(Exception):
    """Base of every error that Assay raises on purpose.

    `stage` says what was being done, `where` names the node, value or file, `hint` says what to do.
    """

    stage = "assay"

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message, self.where, self.hint = message, where, hint
        parts = [f"{self.stage}: {message}"]
        if where:
            parts.append(f"  at: {where}")
        if hint:
            parts.append(f"  hint: {hint}")
        super().__init__("\n".join(parts))


class ImportFailed(AssayError):
    """The source model is damaged, unsafe or not valid in its own format."""

    stage = "import"


class LimitExceeded(ImportFailed):
    """The model asks for more than `assay.Limits` allows."""

    stage = "limits"


class LowerFailed(AssayError):
    """A source op could not be turned into core ops."""

    stage = "lower"


class VerifyFailed(AssayError):
    """A graph breaks an invariant of the IR."""

    stage = "verify"


class CompileFailed(AssayError):
    """A target could not compile a segment."""

    stage = "compile"


class RunFailed(AssayError):
    """An op failed while the program ran."""

    stage = "run"


class BadFeed(AssayError):
    """The inputs given to a session do not fit the model."""

    stage = "feed"


class NotFound(AssayError):
    """A target, peer, value name or file that was asked for does not exist."""

    stage = "lookup"
