"""A store of bytes on disk by key, shared by all processes of one user. What it gives back is what was put in.

An entry is one file: magic, format version, length, SHA-256 of key and content, content. It is written beside its
place and moved there in one step, so readers see a whole entry or none. Whatever is damaged, cut off or belongs to
another key is removed and counts as absent. Nothing that is read is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

LIMIT = 2 << 30
"""Bytes that a store holds by default; those entries go first that were not used for longest."""

_HEADER = struct.Struct("<8sIQ32s")
_MAGIC = b"\x93ASSAY\r\n"
_VERSION = 1
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
_LEAST = 256 << 10  # what an entry counts as at least, which bounds their number too: a sweep stays quick
_ABANDONED = 3600.0  # seconds after which nobody finishes a file any more


class StoreWarning(UserWarning):
    """The store on disk cannot be used, or not written to; results are the same, only later."""


def digest(*parts: bytes | str) -> str:
    """A key: the SHA-256 of the parts, each with its length, so that no two lists of parts run together."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`$ASSAY_CACHE_DIR`, else `$XDG_CACHE_HOME/assay`, else `~/.cache/assay`; RuntimeError without a home."""
    own, shared = environment.get("ASSAY_CACHE_DIR", ""), environment.get("XDG_CACHE_HOME", "")
    if own:
        return Path(own).absolute()
    if os.path.isabs(shared):
        return Path(shared) / "assay"
    return Path.home() / ".cache" / "assay"


def open_store(folder: str | Path | None = None) -> Store | None:
    """The store in `folder`, by default in `default_folder()`; None, with one warning, if that cannot be used."""
    try:
        chosen = default_folder() if folder is None else Path(folder).expanduser().absolute()
    except RuntimeError as error:
        return _no_home(str(error))
    return _opened(str(chosen))


@cache
def _no_home(reason: str) -> None:
    _warn(f"nothing is cached: {reason}", "set ASSAY_CACHE_DIR to a folder of your own")


@cache
def _opened(folder: str) -> Store | None:
    complaint = _unusable(folder)
    if complaint is None:
        return Store(Path(folder))
    _warn(f"nothing is cached in {folder}: {complaint[0]}", complaint[1])
    return None


def _unusable(folder: str) -> tuple[str, str] | None:
    """What is wrong with a folder, which is made if it is missing, and what to do about it."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        found = os.stat(folder)
    except OSError as error:
        return f"it cannot be made ({error.strerror})", "set ASSAY_CACHE_DIR to a folder of your own"
    if found.st_uid != os.geteuid():
        return "it belongs to another user", "set ASSAY_CACHE_DIR to a folder of your own"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"others have rights to it (mode {stat.S_IMODE(found.st_mode):o})", f"chmod 700 '{folder}'"
    return None


def _warn(message: str, hint: str) -> None:
    warnings.warn(f"{message}\n  hint: {hint}", StoreWarning, stacklevel=3)


class Store:
    """Bytes by key (a SHA-256 in hexadecimal, see `digest`) in a folder. Safe for threads and processes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """`folder` exists, and nobody else may write to it: `open_store` sees to that."""
        self.folder, self.limit = folder, limit
        self._warned = False
        self._unswept = limit  # bytes written since the last sweep; the first entry of a process always sweeps

    def get(self, key: str) -> bytes | None:
        """What was put under `key`; None if there is nothing that can be trusted."""
        path = self._path(key)
        try:
            data = _read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain("read", error)
            return None
        content = None if data is None else _content(key, data)
        with suppress(OSError):
            if content is None:
                path.unlink()
            else:
                os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep `content` under `key`. Where that fails there is one warning; what exceeds the limit is not kept."""
        path = self._path(key)
        header = _HEADER.pack(_MAGIC, _VERSION, len(content), _checksum(key, content))
        if len(header) + len(content) > self.limit:
            return
        try:
            _write(path, header, content)
            self._unswept += max(len(header) + len(content), _LEAST)
            if self._unswept > self.limit // 64:
                self._sweep()
        except OSError as error:
            self._complain("written to", error)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key is 64 hexadecimal digits, not {key!r}")
        return self.folder / f"{key}{_SUFFIX}"

    def _sweep(self) -> None:
        """Bring the store down to nine tenths of its limit if it is above it; remove what was left unfinished."""
        self._unswept = 0
        entries: list[tuple[float, int, str]] = []
        now = time.time()
        with os.scandir(self.folder) as found:
            for item in found:
                with suppress(FileNotFoundError):
                    facts = item.stat(follow_symlinks=False)
                    if item.name.endswith(_SUFFIX):
                        entries.append((facts.st_mtime, max(facts.st_size, _LEAST), item.path))
                    elif item.name.endswith(_UNFINISHED) and now - facts.st_mtime > _ABANDONED:
                        os.unlink(item.path)
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * 9 // 10:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size

    def _complain(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _warn(
                f"the cache in {self.folder} cannot be {what}: {error.strerror or error}",
                "free some space there, or set ASSAY_CACHE_DIR to another folder",
            )


def _checksum(key: str, content: bytes | memoryview) -> bytes:
    found = hashlib.sha256(key.encode("ascii"))
    found.update(content)
    return found.digest()


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None if there is something else of that name, such as a link."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read()


def _content(key: str, data: bytes) -> bytes | None:
    """The content of an entry; None unless it is whole and was written for `key`."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length, checksum = _HEADER.unpack_from(data)
    content = memoryview(data)[_HEADER.size :]
    if (magic, version, length) != (_MAGIC, _VERSION, len(content)) or checksum != _checksum(key, content):
        return None
    return bytes(content)


def _write(path: Path, *parts: bytes) -> None:
    handle, name = tempfile.mkstemp(suffix=_UNFINISHED, dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
