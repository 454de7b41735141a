"""A store of bytes on disk by key, shared by all processes of one user. What it gives back is what was put in.

An entry is one file: magic, format version, length, a checksum of key and content, content. It is written beside its
place and moved there in one step, so readers see a whole entry or none. The checksum is keyed by a secret of the
folder: what was not written by a process that could read the secret is no entry. Folder, secret and entries are the
user's own and nobody else has rights to them; that is looked at whenever one is opened, on what was opened.
Whatever is damaged, cut off, a link, not the user's own or belongs to another key is removed and counts as absent.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
import stat
import struct
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

LIMIT = 2 << 30
"""Bytes that a store holds by default; those entries go first that were not used for longest."""

_HEADER = struct.Struct("<8sIQ32s")
_MAGIC = b"\x93ASSAY\r\n"
_VERSION = 2
_KEY = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".entry"
_UNFINISHED = ".unfinished"
_SECRET = "secret"
_SECRET_SIZE = 32
_LEAST = 256 << 10  # what an entry counts as at least, which bounds their number too: a sweep stays quick
_ABANDONED = 3600.0  # seconds after which nobody finishes a file any more
_RECENT = 60.0  # seconds within which one use of an entry is as good as another
_ELSEWHERE = "set ASSAY_CACHE_DIR to a folder of your own"


class StoreWarning(UserWarning):
    """The store on disk cannot be used, or not written to; results are the same, only later."""


class NotPrivate(OSError):
    """A folder or file that is not the user's own alone. `reason` says why, `hint` what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(errno.EPERM, reason)
        self.reason, self.hint = reason, hint


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
        _Folder(folder).secret()
    except NotPrivate as error:
        return error.reason, error.hint.format(folder=folder)
    except OSError as error:
        return f"it cannot be made ({error.strerror})", _ELSEWHERE
    return None


def _warn(message: str, hint: str) -> None:
    warnings.warn(f"{message}\n  hint: {hint}", StoreWarning, stacklevel=3)


class Store:
    """Bytes by key (a SHA-256 in hexadecimal, see `digest`) in a folder. Safe for threads and processes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        """`folder` exists; `open_store` sees to that."""
        self.folder, self.limit = folder, limit
        self._warned = False
        self._unswept = limit  # bytes written since the last sweep; the first entry of a process always sweeps
        self._opened: tuple[_Folder, bytes] | None = None

    def get(self, key: str) -> bytes | None:
        """What was put under `key`; None if there is nothing that can be trusted."""
        name = _name(key)
        try:
            folder, secret = self._opened or self._open()
            folder.check()
            return folder.entry(name, key, secret, self.limit)
        except FileNotFoundError:
            self._opened = None
        except OSError as error:
            self._complain("read", error)
        return None

    def put(self, key: str, content: bytes) -> None:
        """Keep `content` under `key`. Where that fails there is one warning; what exceeds the limit is not kept."""
        name = _name(key)
        size = _HEADER.size + len(content)
        if size > self.limit:
            return
        try:
            folder, secret = self._open()
            checksum = _checksum(secret, key, content)
            folder.write(name, _HEADER.pack(_MAGIC, _VERSION, len(content), checksum), content)
            self._unswept += max(size, _LEAST)
            if self._unswept > self.limit // 64:
                self._unswept = 0
                folder.sweep(self.limit)
        except OSError as error:
            self._complain("written to", error)

    def _open(self) -> tuple[_Folder, bytes]:
        """The folder and its secret as they are now."""
        folder = _Folder(self.folder)
        self._opened = found = folder, folder.secret()
        return found

    def _complain(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            usual = "free some space there, or set ASSAY_CACHE_DIR to another folder"
            hint = error.hint.format(folder=self.folder) if isinstance(error, NotPrivate) else usual
            _warn(f"the cache in {self.folder} cannot be {what}: {error.strerror or error}", hint)


def _name(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"a key is 64 hexadecimal digits, not {key!r}")
    return f"{key}{_SUFFIX}"


class _Folder:
    """An open folder of the user's own, which nobody else has rights to; all in it is reached through it."""

    def __init__(self, path: str | Path) -> None:
        """NotPrivate if it is a link or not the user's own alone; FileNotFoundError if it is not there."""
        try:
            self._place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if not os.path.islink(path):
                raise
            raise NotPrivate("it is a link", "set ASSAY_CACHE_DIR to the folder that it leads to") from error
        self.check()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before a folder is
        if hasattr(self, "_place"):
            close(self._place)

    def check(self) -> None:
        """NotPrivate if others got rights to it since."""
        _check_private(os.fstat(self._place), _ELSEWHERE, "chmod 700 '{folder}'")

    def secret(self) -> bytes:
        """The folder's secret, made if there is none. NotPrivate if others can read it: nothing here is trusted."""
        try:
            found = self.read(_SECRET, _SECRET_SIZE)
        except FileNotFoundError:
            self.write(_SECRET, secrets.token_bytes(_SECRET_SIZE), first=True)
            found = self.read(_SECRET, _SECRET_SIZE)
        except OSError as error:
            raise NotPrivate(f"its secret cannot be trusted ({error.strerror})", "rm -r '{folder}'") from error
        if len(found) != _SECRET_SIZE:
            raise NotPrivate("its secret is damaged", "rm -r '{folder}'")
        return found

    def entry(self, name: str, key: str, secret: bytes, limit: int) -> bytes | None:
        """The content of an entry; None for one that cannot be trusted, which is removed."""
        try:
            data = self.read(name, limit)
        except FileNotFoundError:
            raise
        except OSError:  # a link, a folder, a device, a file of somebody else
            data = b""
        content = _content(secret, key, data)
        if content is None and self.secret() == secret:
            self._remove(name)
        return content

    def read(self, name: str, most: int) -> bytes:
        """A file's bytes. NotPrivate if it is no plain file of the user's own, or has more than `most` bytes."""
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._place)
        try:
            facts = os.fstat(handle)
            _check_private(facts, "", "")
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
                raise NotPrivate("it is no file, or too large a one", "")
            if time.time() - facts.st_mtime > _RECENT:
                with suppress(OSError):
                    os.utime(handle)
            return os.read(handle, facts.st_size)
        finally:
            os.close(handle)

    def write(self, name: str, *parts: bytes, first: bool = False) -> None:
        """Make a file in one step, or replace it; with `first`, one that is there already stays."""
        unfinished = f"{secrets.token_hex(16)}{_UNFINISHED}"
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._place)
        try:
            with open(handle, "wb") as file:
                os.fchmod(handle, 0o600)
                file.writelines(parts)
            if not first or not self._linked(unfinished, name):
                os.replace(unfinished, name, src_dir_fd=self._place, dst_dir_fd=self._place)
        except BaseException:
            self._remove(unfinished)
            raise

    def _linked(self, unfinished: str, name: str) -> bool:
        """Whether a file has its name now, from here or from another process; False where there are no hard links."""
        try:
            with suppress(FileExistsError):
                os.link(unfinished, name, src_dir_fd=self._place, dst_dir_fd=self._place)
        except OSError:
            return False
        self._remove(unfinished)
        return True

    def sweep(self, limit: int) -> None:
        """Bring the entries down to nine tenths of the limit if they are above it; remove what was left unfinished."""
        entries: list[tuple[float, int, str]] = []
        now = time.time()
        with os.scandir(self._place) as found:
            for item in found:
                with suppress(FileNotFoundError):
                    facts = item.stat(follow_symlinks=False)
                    if item.name.endswith(_SUFFIX):
                        entries.append((facts.st_mtime, max(facts.st_size, _LEAST), item.name))
                    elif item.name.endswith(_UNFINISHED) and now - facts.st_mtime > _ABANDONED:
                        self._remove(item.name)
        total = sum(size for _, size, _ in entries)
        if total <= limit:
            return
        for _, size, name in sorted(entries):
            if total <= limit * 9 // 10:
                break
            self._remove(name)
            total -= size

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._place)


def _check_private(facts: os.stat_result, of_others: str, to_others: str) -> None:
    """NotPrivate, with the hint for the case, unless something is the user's own and nobody else has rights to it."""
    if facts.st_uid != os.geteuid():
        raise NotPrivate("it belongs to another user", of_others)
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise NotPrivate(f"others have rights to it (mode {stat.S_IMODE(facts.st_mode):o})", to_others)


def _checksum(secret: bytes, key: str, content: bytes | memoryview) -> bytes:
    found = hashlib.blake2b(key.encode("ascii"), digest_size=32, key=secret)
    found.update(content)
    return found.digest()


def _content(secret: bytes, key: str, data: bytes) -> bytes | None:
    """The content of an entry; None unless it is whole and was written for `key` by one who knew the secret."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length, checksum = _HEADER.unpack_from(data)
    content = memoryview(data)[_HEADER.size :]
    if (magic, version, length) != (_MAGIC, _VERSION, len(content)):
        return None
    return bytes(content) if hmac.compare_digest(checksum, _checksum(secret, key, content)) else None
