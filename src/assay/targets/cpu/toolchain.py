"""The C compiler: kernels become shared objects, each compiled once and kept in the store on disk."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.errors import CompileFailed
from assay.store import Store, digest, open_store

SOURCES = Path(__file__).parent / "c"
FLAGS = (
    *("-std=gnu17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"),
    *("-fopenmp-simd", "-fPIC", "-shared", "-Wno-unknown-pragmas", "-Wno-psabi"),
)
LIBRARIES = ("-lm", "-lpthread")
_SPARE = ("/dev/shm",)
"""Where a compiler may write if the folder for temporary files takes nothing."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's source. Equal sources are one kernel."""

    source: str


def template(header: str, **defines: object) -> Kernel:
    """The kernel that `header` of the folder `c` makes under these definitions."""
    lines = [f"#define {name} {value}\n" for name, value in sorted(defines.items())]
    return Kernel("".join(lines) + f'#include "{header}"\n')


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler of this machine; `identity` tells it from others and from other versions."""

    path: str
    identity: str


@cache
def find_compiler() -> Compiler | None:
    """`$CC`, else cc, gcc or clang, whatever comes first; None if there is none."""
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        found = shutil.which(name)
        if found is not None:
            facts = os.stat(found)
            return Compiler(found, f"{os.path.realpath(found)} {facts.st_size} {facts.st_mtime_ns}")
    return None


class Toolchain:
    """Compiles kernels and loads them; what was compiled before, by any process, is taken from the store."""

    def __init__(self, compiler: Compiler, store: Store | None = None, *, flags: Sequence[str] = ()) -> None:
        self.compiler = compiler
        self._flags = (*FLAGS, *flags)
        self._store = store
        self._identity = digest(compiler.identity, " ".join(self._flags), _machine(), _headers())
        self._loaded: dict[Kernel, ctypes.CDLL] = {}

    def load(self, kernels: Sequence[Kernel]) -> list[ctypes.CDLL]:
        """The kernels as libraries, in order. CompileFailed says what the compiler said."""
        missing = [kernel for kernel in dict.fromkeys(kernels) if kernel not in self._loaded]
        found = {kernel: self._stored(kernel) for kernel in missing}
        fresh = [kernel for kernel in missing if found[kernel] is None]
        if fresh:
            _progress(f"compiling {len(fresh)} kernel(s)")
            found.update(zip(fresh, self._compile(fresh), strict=True))
        for kernel, content in found.items():
            self._loaded.setdefault(kernel, _loaded(content or b""))
        return [self._loaded[kernel] for kernel in kernels]

    def _stored(self, kernel: Kernel) -> bytes | None:
        return None if self._store is None else self._store.get(digest(self._identity, kernel.source))

    def _compile(self, kernels: Sequence[Kernel]) -> list[bytes]:
        with _workspace() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            jobs = [
                workers.submit(self._compile_one, kernel, Path(folder) / f"{index}.so")
                for index, kernel in enumerate(kernels)
            ]
            return [job.result() for job in jobs]

    def _compile_one(self, kernel: Kernel, target: Path) -> bytes:
        files = ("-iquote", str(SOURCES), "-x", "c", "-", "-o", str(target))
        command = [self.compiler.path, *self._flags, *files, *LIBRARIES]
        own = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # meant for this process
        try:
            done = subprocess.run(command, input=kernel.source.encode(), capture_output=True, check=False, env=own)
        except OSError as error:
            raise CompileFailed(f"the C compiler could not be run: {error}") from error
        if done.returncode != 0 or not target.exists():
            said = done.stderr.decode(errors="replace").strip()
            raise CompileFailed(f"the C compiler failed: {said[:2000] or done.returncode}")
        content = target.read_bytes()
        target.unlink()
        if self._store is not None:
            self._store.put(digest(self._identity, kernel.source), content)
        return content


@cache
def shared_toolchain() -> Toolchain | None:
    """The toolchain of this process, with the further flags of `$ASSAY_CFLAGS`; None without a compiler."""
    compiler = find_compiler()
    flags = shlex.split(os.environ.get("ASSAY_CFLAGS", ""))
    return None if compiler is None else Toolchain(compiler, open_store(), flags=flags)


def _workspace() -> tempfile.TemporaryDirectory[str]:
    for folder in (None, *_SPARE):
        try:
            with tempfile.NamedTemporaryFile(dir=folder) as trial:
                trial.write(b"\0" * 65536)
                trial.flush()
            return tempfile.TemporaryDirectory(dir=folder, prefix="assay-")
        except OSError:
            continue
    raise CompileFailed("the C compiler has nowhere to write", hint="free some space, or set TMPDIR")


def _loaded(content: bytes) -> ctypes.CDLL:
    """A shared object loaded from memory, so that what runs is what was checked."""
    handle = os.memfd_create("assay-kernel", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        return ctypes.CDLL(f"/proc/self{_another_spelling()}/fd/{handle}")
    finally:
        os.close(handle)


_spellings = itertools.count()


def _another_spelling() -> str:
    """A stretch of a path that leads nowhere, new with every call: the loader takes equal names for one library."""
    return "".join("/." if digit == "1" else "//" for digit in f"{next(_spellings):b}")


def _machine() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    wanted = ("flags", "Features", "model name", "cpu family", "model\t")
    first = {line.partition(":")[0]: line for line in reversed(lines) if line.startswith(wanted)}
    return platform.machine() + "".join(sorted(first.values()))


@cache
def _headers() -> str:
    return digest(*(part for path in sorted(SOURCES.iterdir()) for part in (path.name, path.read_bytes())))


def _progress(message: str) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"assay: {message}", file=sys.stderr)
