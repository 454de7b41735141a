"""The store on disk where others can write: nothing that is not the user's own is read or followed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from runtime.stores import KEY, OTHER, entry, refused

from assay.store import Store, StoreWarning, digest, open_store


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
