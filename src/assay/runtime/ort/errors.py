"""ONNX Runtime's exceptions by name, as programs catch them; each is the error that Assay raises in its place."""

from __future__ import annotations

from assay.errors import (
    AssayError,
    BadArgument,
    CompileFailed,
    FileMissing,
    ImportFailed,
    LowerFailed,
    NotFound,
    RunFailed,
)


class Misfit(BadArgument, RuntimeError):
    """What ONNX Runtime tells with a RuntimeError that has no name of its own."""


class MissingEntry(NotFound, RuntimeError):
    """A configuration entry that was never added."""


class NeverRaised(AssayError):
    """Stands for what cannot happen here."""


EXCEPTIONS: dict[str, type[AssayError]] = {
    "DeviceReset": NeverRaised,
    "EPFail": CompileFailed,
    "EngineError": NeverRaised,
    "Fail": RunFailed,
    "InvalidArgument": BadArgument,
    "InvalidGraph": ImportFailed,
    "InvalidProtobuf": ImportFailed,
    "ModelLoadCanceled": NeverRaised,
    "ModelLoaded": NeverRaised,
    "ModelRequiresCompilation": NeverRaised,
    "NoModel": NeverRaised,
    "NoSuchFile": FileMissing,
    "NotFound": NotFound,
    "NotImplemented": LowerFailed,
    "RuntimeException": RunFailed,
}
