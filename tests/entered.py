"""Which files of the package a piece of code enters, in the order in which a function of each is first called.

What modules do while they are imported does not count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import assay

PACKAGE = str(Path(assay.__file__).parent) + "/"


@contextmanager
def entered() -> Generator[list[str]]:
    """The files, under their paths in the package; of other threads too, if they start in here."""
    found: dict[str, None] = {}
    importing = threading.local()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code.co_name == "<module>":
            importing.depth = getattr(importing, "depth", 0) + (1 if event == "call" else -1)
        elif event == "call" and code.co_filename.startswith(PACKAGE) and not getattr(importing, "depth", 0):
            found.setdefault(code.co_filename.removeprefix(PACKAGE))

    files: list[str] = []
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        files.extend(found)
