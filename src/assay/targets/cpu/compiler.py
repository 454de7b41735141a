"""The C compiler of this machine: finding it, and running it within a limit of time."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.errors import CompileFailed

SECONDS = 120.0
"""How long one kernel may take to compile, unless `$ASSAY_COMPILE_SECONDS` says otherwise; most take less than one."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler of this machine; `identity` tells it from others and from other versions."""

    path: str
    identity: str
    flags: tuple[str, ...] = ()
    """What stands after the program's name in `$CC`."""

    def __str__(self) -> str:
        return shlex.join((self.path, *self.flags))


@dataclass(frozen=True, slots=True)
class Search:
    """The compiler to use, if there is one, and what is wrong with `$CC`, if something is."""

    compiler: Compiler | None
    complaint: str = ""


@cache
def search() -> Search:
    """What this process uses; the environment is looked at once."""
    return searched(os.environ)


def find_compiler() -> Compiler | None:
    """`$CC`, which may have flags, else cc, gcc or clang, whatever comes first; None if there is none."""
    return search().compiler


def searched(environment: Mapping[str, str]) -> Search:
    """The compiler that an environment leads to."""
    wanted, folders = environment.get("CC", "").strip(), environment.get("PATH")
    complaint = ""
    if wanted:
        words = _words(wanted)
        found = shutil.which(words[0], path=folders) if words else None
        if found is not None:
            return Search(_identified(found, words[1:]))
        complaint = f"CC is {wanted!r}, which is no program that can be run"
    others = (shutil.which(name, path=folders) for name in ("cc", "gcc", "clang"))
    found = next(filter(None, others), None)
    return Search(None if found is None else _identified(found, []), complaint)


def _words(text: str) -> list[str]:
    """A command in the words that a shell would make of it; none if it is not one."""
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _identified(path: str, flags: Sequence[str]) -> Compiler:
    programs = (path, *(shutil.which(flag) for flag in flags if not flag.startswith("-")))  # as in CC="ccache gcc"
    identities = [f"{os.path.realpath(each)} {_facts(each)}" for each in programs if each is not None]
    return Compiler(path, " ".join([*identities, *flags]), tuple(flags))


def _facts(path: str) -> str:
    facts = os.stat(path)
    return f"{facts.st_size} {facts.st_mtime_ns}"


def seconds_allowed(environment: Mapping[str, str] = os.environ) -> float:
    """The limit of time for one kernel; CompileFailed if the environment states one that is none."""
    text = environment.get("ASSAY_COMPILE_SECONDS", "")
    try:
        stated = float(text) if text else SECONDS
    except ValueError:
        stated = 0.0
    if not stated > 0:
        raise CompileFailed(f"ASSAY_COMPILE_SECONDS is {text!r}, which is no number of seconds", hint="such as 120")
    return stated


class TookTooLong(CompileFailed):
    """The compiler was stopped: it did not come to an end within the limit of time."""


class Compilations:
    """Runs of a compiler that can be stopped together, with all the processes that they started."""

    def __init__(self, compiler: Compiler, seconds: float) -> None:
        self._compiler, self._seconds = compiler, seconds
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, flags: Sequence[str], source: str, folder: Path) -> None:
        """Compile a source, with temporary files in `folder`. CompileFailed says what the compiler said."""
        command = [self._compiler.path, *self._compiler.flags, *flags]
        own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # meant for this process
        try:
            with self._started(command, {**own, "TMPDIR": str(folder)}) as process:
                code, said = self._finished(process, source.encode())
        except OSError as error:
            raise CompileFailed(f"the C compiler '{self._compiler}' could not be run: {error}") from error
        if code != 0:
            text = said.decode(errors="replace").strip()
            raise CompileFailed(f"the C compiler '{self._compiler}' failed: {text[:2000] or f'it ended with {code}'}")

    def stop(self) -> None:
        """End all that runs; what was not begun yet will not begin."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _end(process)

    def _started(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise CompileFailed("compiling was stopped")
            pipe = subprocess.PIPE
            process = subprocess.Popen(  # in a group of its own, so that it ends with all that it started
                command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
            )
            self._running.add(process)
            return process

    def _finished(self, process: subprocess.Popen[bytes], source: bytes) -> tuple[int, bytes]:
        """How a compiler ended and what it said; TookTooLong if it had to be ended."""
        try:
            _, said = process.communicate(source, timeout=self._seconds)
        except subprocess.TimeoutExpired:
            message = f"the C compiler '{self._compiler}' was stopped after {self._seconds:g} seconds"
            raise TookTooLong(message, hint="set ASSAY_COMPILE_SECONDS if it needs more") from None
        finally:
            with self._lock:
                _end(process)
                self._running.discard(process)
        return process.returncode, said


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group, unless it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
