"""The C compiler: kernels become shared objects, each compiled once and kept in the store on disk."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shlex
import struct
import sys
import tempfile
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from assay.errors import CompileFailed
from assay.store import Store, digest, open_store
from assay.targets.cpu.compiler import Compilations, Compiler, TookTooLong, find_compiler, search, seconds_allowed
from assay.targets.shared.artifacts import Artifacts, Kernel

__all__ = ["FLAGS", "SOURCES", "Compiler", "Toolchain", "find_compiler", "shared_toolchain", "template"]

SOURCES = Path(__file__).parent / "c"
FLAGS = (
    *("-std=gnu17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"),
    *("-fopenmp-simd", "-fPIC", "-shared", "-Wno-unknown-pragmas", "-Wno-psabi"),
)
LIBRARIES = ("-lm", "-lpthread")
_SPARE = ("/dev/shm",)
"""Where a compiler may write if the folder for temporary files takes nothing."""
_ROOM = 16 << 20
_TRIAL = 1 << 20
"""Bytes that must be free where a compiler writes, and those that are written to see."""


def template(header: str, **defines: object) -> Kernel:
    """The kernel that `header` of the folder `c` makes under these definitions."""
    lines = [f"#define {name} {value}\n" for name, value in sorted(defines.items())]
    return Kernel("".join(lines) + f'#include "{header}"\n')


class Toolchain:
    """Compiles kernels and loads them; what was compiled before, by any process, is taken from the store."""

    def __init__(self, compiler: Compiler, store: Store | None = None, *, flags: Sequence[str] = ()) -> None:
        self.compiler = compiler
        self._flags = (*FLAGS, *flags)
        self.identity = digest(compiler.identity, " ".join(self._flags), _machine(), _headers())
        """What stands for all that native code depends on, here and now, but its source."""
        self.artifacts = Artifacts(self.identity, store, _loaded)
        self._given_up = ""

    def load(self, kernels: Sequence[Kernel]) -> list[ctypes.CDLL]:
        """The kernels as libraries, in order. CompileFailed says what the compiler said."""
        return self.artifacts.ready(kernels, self._compile)

    def _compile(self, kernels: Sequence[Kernel]) -> list[ctypes.CDLL]:
        if self._given_up:
            raise CompileFailed(f"{self._given_up}; it is not tried again in this process")
        from concurrent.futures import ThreadPoolExecutor

        _progress(f"compiling {len(kernels)} kernel(s)")
        compilations = Compilations(self.compiler, seconds_allowed())
        with _workspace() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            jobs = [
                workers.submit(self._compile_one, compilations, kernel, Path(folder), index)
                for index, kernel in enumerate(kernels)
            ]
            try:
                return [job.result() for job in jobs]
            except BaseException as error:
                self._given_up = error.message if isinstance(error, TookTooLong) else ""
                workers.shutdown(wait=False, cancel_futures=True)
                compilations.stop()
                raise

    def _compile_one(self, compilations: Compilations, kernel: Kernel, folder: Path, index: int) -> ctypes.CDLL:
        """A kernel compiled, loaded and kept."""
        target = folder / f"{index}.so"
        files = ("-iquote", str(SOURCES), "-x", "c", "-", "-o", str(target))
        compilations.run((*self._flags, *files, *LIBRARIES), kernel.source, folder)
        try:
            content = target.read_bytes()
            target.unlink()
        except OSError as error:
            raise CompileFailed(f"the C compiler '{self.compiler}' made no file: {error.strerror}") from error
        return self.artifacts.keep(kernel, content)


@cache
def shared_toolchain() -> Toolchain | None:
    """The toolchain of this process, with the further flags of `$ASSAY_CFLAGS`; None without a compiler."""
    found = search()
    if found.compiler is None:
        return None
    if found.complaint:
        warnings.warn(f"{found.complaint}: {found.compiler} is used instead", RuntimeWarning, stacklevel=2)
    flags = os.environ.get("ASSAY_CFLAGS", "")
    try:
        return Toolchain(found.compiler, open_store(), flags=shlex.split(flags))
    except ValueError as error:
        raise CompileFailed(f"ASSAY_CFLAGS is {flags!r}, which are no flags: {error}") from error


def _workspace() -> tempfile.TemporaryDirectory[str]:
    for folder in (None, *_SPARE):
        try:
            made = tempfile.TemporaryDirectory(dir=folder, prefix="assay-", ignore_cleanup_errors=True)
            if _has_room(made.name):
                return made
            made.cleanup()
        except OSError:
            continue
    raise CompileFailed("the C compiler has nowhere to write", hint="free some space, or set TMPDIR")


def _has_room(folder: str) -> bool:
    """Whether a folder takes what compilers write: by what the file system says, and by trying."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < _ROOM:
        return False
    with tempfile.TemporaryFile(dir=folder) as trial:
        trial.write(bytes(_TRIAL))
    return True


def _loaded(content: bytes, kernel: Kernel) -> ctypes.CDLL:
    """A shared object loaded from memory, so that what runs is what was checked. CompileFailed if it is none."""
    if not is_whole(content):
        raise CompileFailed(f"the C compiler ended well and made no library, but {len(content)} bytes of something")
    handle = os.memfd_create("assay-kernel", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        library = ctypes.CDLL(f"/proc/self{_another_spelling()}/fd/{handle}")
    except OSError as error:
        raise CompileFailed(f"what the C compiler made cannot be loaded: {error}") from error
    finally:
        os.close(handle)
    if not hasattr(library, kernel.entry):
        raise CompileFailed(f"what the C compiler made has no function '{kernel.entry}'")
    return library


_ELF = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_PART = struct.Struct("<IIQQQQQQ")
_LOADED_PART = 1


def is_whole(content: bytes) -> bool:
    """Whether a shared object has all the bytes that it speaks of; the loader trusts that, and would die."""
    if len(content) < _ELF.size:
        return False
    magic, width, _, _, _, _, _, parts, sections, _, _, part_size, part_count, section_size, section_count, _ = (
        _ELF.unpack_from(content)
    )
    if magic != b"\x7fELF" or width != 2 or part_size != _PART.size or parts + part_count * part_size > len(content):
        return False
    found = [_PART.unpack_from(content, parts + index * part_size) for index in range(part_count)]
    ends = [offset + size for kind, _, offset, _, _, size, _, _ in found if kind == _LOADED_PART]
    return bool(ends) and max(*ends, sections + section_size * section_count) <= len(content)


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
