"""The store on disk: what comes back is what was put in, or nothing; nobody else's folder is used."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime.stores import KEY, OTHER, entry, refused

from assay import store as store_module
from assay.store import Store, StoreWarning, default_folder, digest, open_store


def test_what_was_put_comes_back(store: Store) -> None:
    assert store.get(KEY) is None
    for content in (b"", b"x", bytes(range(256)) * 5000):
        store.put(KEY, content)
        assert store.get(KEY) == content
        assert store.get(OTHER) is None
    assert {path.name for path in store.folder.iterdir()} == {f"{KEY}.entry", "secret"}


def test_folders_and_files_are_for_their_owner_alone(store: Store) -> None:
    store.put(KEY, b"x")
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(store).stat().st_mode) == 0o600
    assert stat.S_IMODE((store.folder / "secret").stat().st_mode) == 0o600


@pytest.mark.parametrize("mask", [0, 0o777])
def test_the_mask_of_the_process_changes_no_rights(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        (tmp_path / "cache").mkdir(mode=0o700)
        (tmp_path / "cache").chmod(0o700)
        store = open_store(tmp_path / "cache")
        assert store is not None
        store.put(KEY, b"x")
        assert store.get(KEY) == b"x"
        assert {stat.S_IMODE(path.stat().st_mode) for path in store.folder.iterdir()} == {0o600}
    finally:
        os.umask(before)


def test_parts_of_a_key_do_not_run_together() -> None:
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert digest("a") == digest(b"a")


@pytest.mark.parametrize("key", ["", "../" + "0" * 61, "0" * 63, "G" * 64, "0" * 64 + "\n"])
def test_a_key_is_no_path(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="a key is"):
        store.put(key, b"x")
    with pytest.raises(ValueError, match="a key is"):
        store.get(key)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ASSAY_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/assay"),
        ({"XDG_CACHE_HOME": "relative", "ASSAY_CACHE_DIR": ""}, "/home/me/.cache/assay"),
        ({}, "/home/me/.cache/assay"),
    ],
)
def test_where_the_folder_is(environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder(environment) == Path(expected)


# ---- folders that are not used -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_with_wider_rights_is_not_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "wide"
    folder.mkdir()
    folder.chmod(mode)
    refused(folder, f"others have rights to it (mode {mode:o})")
    assert not list(folder.iterdir())


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    refused(tmp_path / "theirs", "belongs to another user")


def test_a_folder_that_cannot_be_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "below", "cannot be made")
    refused(tmp_path / "file", "cannot be made")


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    refused(tmp_path / "link", "it is a link")
    assert not list((tmp_path / "real").iterdir())


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ASSAY_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    store_module._no_home.cache_clear()
    with pytest.warns(StoreWarning, match="hint: set ASSAY_CACHE_DIR"):
        assert open_store() is None


# ---- entries that are not trusted ----------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_damaged_entry_is_removed(store: Store) -> None:
    store.put(KEY, b"some content")
    whole = entry(store).read_bytes()
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [flipped(whole, at) for at in range(len(whole))]
    damaged += [whole + b"\0", b"", b"x" * 4096, pickle.dumps({"a": 1})]
    for data in damaged:
        entry(store).write_bytes(data)
        assert store.get(KEY) is None
        assert not entry(store).exists()
    store.put(KEY, b"some content")
    assert store.get(KEY) == b"some content"


def test_the_entry_of_another_key_is_removed(store: Store) -> None:
    store.put(OTHER, b"content")
    entry(store).write_bytes(entry(store, OTHER).read_bytes())
    assert store.get(KEY) is None
    assert not entry(store).exists()
    assert store.get(OTHER) == b"content"


def test_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.put(KEY, b"content")
    outside = tmp_path / "outside"
    entry(store).rename(outside)
    entry(store).symlink_to(outside)
    assert store.get(KEY) is None
    assert not entry(store).is_symlink()
    assert outside.exists()


def test_what_is_no_file_is_not_read(store: Store) -> None:
    os.mkfifo(entry(store))
    assert store.get(KEY) is None
    entry(store, OTHER).mkdir()
    assert store.get(OTHER) is None


class Deed:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def test_an_entry_runs_no_code(store: Store, tmp_path: Path) -> None:
    content = pickle.dumps(Deed(tmp_path / "done"))
    entry(store).write_bytes(content)
    assert store.get(KEY) is None
    store.put(KEY, content)
    assert store.get(KEY) == content
    assert not (tmp_path / "done").exists()


# ---- several processes, little space -------------------------------------------------------------------------

WRITER = """
import sys
from assay.store import digest, open_store
store = open_store(sys.argv[1])
for turn in range(25):
    for number in range(5):
        key, content = digest(str(number)), str(number).encode() * (20_000 + number)
        assert store.get(key) in (None, content)
        store.put(key, content)
        assert store.get(key) == content
"""


def test_ten_processes_share_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    command = [sys.executable, "-W", "error", "-c", WRITER, str(folder)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(10)]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert len(list(folder.iterdir())) == 5 + 1


def test_a_full_disk_is_one_warning(tmp_path: Path) -> None:
    program = """
import resource, sys, warnings
from assay.store import digest, open_store
store = open_store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in range(3):
        store.put(digest(str(number)), bytes(100_000))
        assert store.get(digest(str(number))) is None
    store.put(digest("small"), b"fits")
    assert store.get(digest("small")) == b"fits"
assert len(caught) == 1 and "cannot be written to" in str(caught[0].message), caught
"""
    folder = tmp_path / "cache"
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)
    assert len(list(folder.iterdir())) == 1 + 1  # nothing unfinished stays


def test_a_read_only_folder_is_one_warning(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(KEY, b"content")

    def read_only(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    opened = os.open

    def open_to_read(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        return read_only() if flags & os.O_CREAT else opened(path, flags, *args, **kwargs)

    for name in ("unlink", "utime", "replace", "link"):
        monkeypatch.setattr(os, name, read_only)
    monkeypatch.setattr(os, "open", open_to_read)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            store.put(OTHER, b"more")
        assert store.get(OTHER) is None
        assert store.get(KEY) == b"content"
    (warning,) = caught
    assert "Read-only file system\n  hint: " in str(warning.message)


def test_a_folder_that_was_removed_is_one_warning(store: Store) -> None:
    shutil.rmtree(store.folder)
    assert store.get(KEY) is None
    with pytest.warns(StoreWarning, match="cannot be written to"):
        store.put(KEY, b"content")


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    size = 300_000
    store = Store(tmp_path, limit=10 * (size + 100))
    keys = [digest(str(number)) for number in range(11)]
    for age, key in enumerate(keys[:10]):
        store.put(key, bytes(size))
        os.utime(entry(store, key), (0, 1_000_000 + age))
    assert store.get(keys[0]) is not None  # used just now
    store.put(keys[10], bytes(size))
    kept = [number for number, key in enumerate(keys) if entry(store, key).exists()]
    assert kept == [0, 3, 4, 5, 6, 7, 8, 9, 10]


def test_the_number_of_small_entries_is_bounded_too(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=4 << 20)
    for number in range(100):
        store.put(digest(str(number)), b"")
    assert 10 <= len(list(tmp_path.iterdir())) - 1 <= 16


def test_what_exceeds_the_limit_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, limit=1000)
    store.put(KEY, bytes(1000))
    assert store.get(KEY) is None


def test_what_was_left_unfinished_is_removed(store: Store) -> None:
    old, young = store.folder / "old.unfinished", store.folder / "young.unfinished"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.put(KEY, b"content")
    assert not old.exists()
    assert young.exists()
