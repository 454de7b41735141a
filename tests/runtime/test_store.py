"""The store on disk: what comes back is what was put in, or nothing; nobody else's folder is used."""

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assay import store as store_module
from assay.store import Store, StoreWarning, default_folder, digest, open_store

KEY, OTHER = digest("a"), digest("b")


def entry(store: Store, key: str = KEY) -> Path:
    return store.folder / f"{key}.entry"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "cache")
    assert opened is not None
    return opened


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


def refused(folder: Path, message: str) -> None:
    """Opening twice gives nothing, and one warning with a hint."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert open_store(folder) is None
        assert open_store(folder) is None
    (warning,) = caught
    assert warning.category is StoreWarning
    assert message in str(warning.message)
    assert "hint: " in str(warning.message)


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


# ---- what others could have written --------------------------------------------------------------------------


def test_an_entry_by_one_who_does_not_know_the_secret_is_removed(store: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other")
    assert other is not None
    other.put(KEY, b"evil")
    assert other.get(KEY) == b"evil"
    entry(store).write_bytes(entry(other).read_bytes())
    entry(store).chmod(0o600)
    assert store.get(KEY) is None
    assert not entry(store).exists()


def linked(path: Path) -> None:
    aside = path.rename(path.with_name("aside"))
    path.symlink_to(aside)


def linked_out(path: Path) -> None:
    aside = path.rename(path.parent.parent / f"aside {path.name}")
    path.symlink_to(aside)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def bound(path: Path) -> None:
    path.unlink()
    before = Path.cwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def folded(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing")


def circular(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def swollen(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


DEEDS: dict[str, Callable[[Path], Any]] = {
    **{f"mode {mode:o}": lambda path, mode=mode: path.chmod(mode) for mode in (0o604, 0o640, 0o602, 0o620, 0o777)},
    **{
        deed.__name__: deed for deed in (linked, linked_out, piped, bound, folded, dangling, circular, emptied, swollen)
    },
}


@pytest.fixture
def impatient() -> Iterator[None]:
    """A pipe that somebody waits for ends the test."""

    def ring(*_: Any) -> None:
        raise TimeoutError("the store waits for something")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("deed", DEEDS)
def test_an_entry_that_is_not_the_users_own_is_no_entry(store: Store, deed: str) -> None:
    store.put(KEY, b"content")
    store.put(OTHER, b"other")
    DEEDS[deed](entry(store))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEY) is None
        assert store.get(OTHER) == b"other"
    if deed != "folded":
        assert not os.path.lexists(entry(store))
        store.put(KEY, b"content")
        assert store.get(KEY) == b"content"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("deed", DEEDS)
def test_a_secret_that_is_not_the_users_own_makes_the_folder_useless(store: Store, deed: str) -> None:
    store.put(KEY, b"content")
    DEEDS[deed](store.folder / "secret")
    fresh = Store(store.folder)
    with pytest.warns(StoreWarning, match=r"its secret[\s\S]*hint: rm -r"):
        assert fresh.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh.put(KEY, b"more")  # one warning is enough
    with pytest.warns(StoreWarning, match="its secret"):
        store.put(OTHER, b"more")
    assert not entry(store, OTHER).exists()
    refused(store.folder.rename(store.folder.with_name("again")), "its secret")


@pytest.mark.parametrize("what", ["folder", "secret", "entry"])
def test_the_owner_is_looked_at_on_what_was_opened(store: Store, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the one file belonged to somebody else; which cannot be brought about without rights."""
    store.put(KEY, b"content")
    path = {"folder": store.folder, "secret": store.folder / "secret", "entry": entry(store)}[what]
    theirs, fstat = path.stat().st_ino, os.fstat

    def told(handle: int) -> Any:
        facts = fstat(handle)
        values = list(facts)
        if facts.st_ino == theirs:
            values[4] = facts.st_uid + 1
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", told)
    fresh = Store(store.folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert fresh.get(KEY) is None
    assert len(caught) == (what != "entry")
    assert all("another user" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("late", [False, True])
def test_rights_to_the_folder_are_looked_at_each_time(store: Store, late: bool) -> None:
    store.put(KEY, b"content")
    user = store if late else Store(store.folder)
    store.folder.chmod(0o770)
    with pytest.warns(StoreWarning, match=r"others have rights to it \(mode 770\)[\s\S]*hint: chmod 700"):
        assert user.get(KEY) is None
    store.folder.chmod(0o700)
    assert user.get(KEY) == b"content"


def test_a_folder_that_becomes_a_link_is_not_followed(store: Store, tmp_path: Path) -> None:
    evil = open_store(tmp_path / "evil")
    assert evil is not None
    evil.put(KEY, b"evil")
    store.put(OTHER, b"other")
    moved = store.folder.rename(tmp_path / "moved")
    store.folder.symlink_to(evil.folder)
    assert store.get(KEY) is None
    fresh = Store(store.folder)
    with pytest.warns(StoreWarning, match="it is a link"):
        assert fresh.get(KEY) is None
    with pytest.warns(StoreWarning, match="it is a link"):
        store.put(KEY, b"content")
    assert evil.get(KEY) == b"evil"
    assert moved.exists()


def test_a_folder_that_was_made_anew_serves_again(store: Store) -> None:
    store.put(KEY, b"content")
    shutil.rmtree(store.folder)
    assert store.get(KEY) is None
    store.folder.mkdir(mode=0o700)
    store.put(KEY, b"again")
    assert store.get(KEY) == b"again"
    other = Store(store.folder)
    assert other.get(KEY) == b"again"


def test_an_entry_is_not_removed_because_the_secret_is_new(store: Store) -> None:
    store.put(KEY, b"content")
    (store.folder / "secret").unlink()
    other = Store(store.folder)
    other.put(OTHER, b"other")
    assert store.get(OTHER) is None
    assert other.get(OTHER) == b"other"


def test_the_secret_is_made_once_by_many(tmp_path: Path) -> None:
    program = "import sys; from assay.store import _Folder; print(_Folder(sys.argv[1]).secret().hex())"
    for turn in range(3):
        folder = tmp_path / str(turn)
        folder.mkdir(mode=0o700)
        command = [sys.executable, "-c", program, str(folder)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(6)]
        assert len({process.communicate(timeout=60)[0] for process in running}) == 1
        assert [path.name for path in folder.iterdir()] == ["secret"]


def test_without_hard_links_there_is_a_secret_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unknown)
    store = open_store(tmp_path / "cache")
    assert store is not None
    store.put(KEY, b"content")
    assert store.get(KEY) == b"content"
    assert len(list(store.folder.iterdir())) == 2


def hostile_hand(folder: Path, evil: Store, chance: random.Random) -> None:
    """Something that another process of the user could do to the folder at any moment."""
    key = chance.choice(KEYS)
    path, theirs = folder / f"{key}.entry", entry(evil, key)
    deeds: list[Callable[[], Any]] = [
        lambda: path.unlink(),
        lambda: (path.unlink(missing_ok=True), path.symlink_to(theirs)),
        lambda: (path.unlink(missing_ok=True), os.mkfifo(path)),
        lambda: (path.unlink(missing_ok=True), os.link(theirs, path)),
        lambda: (path.unlink(missing_ok=True), shutil.copy(theirs, path)),
        lambda: (path.unlink(missing_ok=True), path.mkdir(mode=0o700)),
        lambda: path.rmdir(),
        lambda: (folder / "secret").unlink(),
        lambda: (shutil.rmtree(folder), folder.mkdir(mode=0o700)),
        lambda: (folder.chmod(0o755), folder.chmod(0o700)),
        lambda: (folder.rename(f"{folder}.away"), folder.symlink_to(evil.folder)),
    ]
    with suppress(OSError):
        chance.choice(deeds)()
    if folder.is_symlink():
        folder.unlink()
        Path(f"{folder}.away").rename(folder)


KEYS = [digest(str(number)) for number in range(5)]


@pytest.mark.usefixtures("impatient")
def test_a_hostile_hand_changes_no_content(tmp_path: Path) -> None:
    """Threads read and write while the folder changes under them: they get what was put, or nothing."""
    folder, evil, chance = tmp_path / "cache", open_store(tmp_path / "evil"), random.Random(3)
    folder.mkdir(mode=0o700)
    assert evil is not None
    for key in KEYS:
        evil.put(key, b"evil" * 50)
    done, hits, faults = threading.Event(), list[bytes](), list[Any]()

    def use(seed: int) -> None:
        own, choice = Store(folder), random.Random(seed)
        try:
            while not done.is_set():
                key = choice.choice(KEYS)
                own.put(key, key.encode())
                found = own.get(choice.choice(KEYS))
                hits.extend([found] if found is not None else [])
        except BaseException as error:
            faults.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        users = [threading.Thread(target=use, args=(seed,)) for seed in range(3)]
        for user in users:
            user.start()
        for _ in range(1500):
            hostile_hand(folder, evil, chance)
        done.set()
        for user in users:
            user.join()
    assert not faults
    assert hits
    assert set(hits) <= {key.encode() for key in KEYS}
    assert all(evil.get(key) == b"evil" * 50 for key in KEYS)


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
