"""Run a Python file in a process that ends, with all that it starts, when nobody holds its standard input any more."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_input() -> None:
    os.read(0, 1)  # sys.stdin would be locked when the interpreter ends
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_path(sys.argv[1], run_name="__main__")
