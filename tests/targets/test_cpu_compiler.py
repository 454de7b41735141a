"""Compilers that hang, lie, are not there or have nowhere to write: one reason, and the oracle runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from targets.test_cpu_target import SCRIPT, run

from assay.errors import CompileFailed
from assay.store import open_store
from assay.targets.cpu import toolchain
from assay.targets.cpu.compiler import Compilations, Compiler, TookTooLong, find_compiler, searched, seconds_allowed
from assay.targets.cpu.toolchain import Toolchain, is_whole
from assay.targets.shared.artifacts import Kernel

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

REAL = find_compiler()
SOUND = Kernel("void kernel(void) {}\n")


def script(path: Path, *lines: str) -> str:
    """A compiler of a few lines of shell; `$out` is the file that it is to make, `$cc` a real compiler."""
    find = 'out=""; for word in "$@"; do [ "$last" = -o ] && out="$word"; last="$word"; done'
    path.write_text("\n".join(["#!/bin/sh", f"cc='{REAL.path if REAL else ''}'", find, *lines, ""]))
    path.chmod(0o755)
    return str(path)


LIES = {
    "nothing": ": > /dev/null",
    "an empty file": ': > "$out"',
    "a text": 'echo "this is a library" > "$out"',
    "zeros": 'head -c 20000 /dev/zero > "$out"',
    "a part": '"$cc" "$@" && head -c 6000 "$out" > "$out.x" && mv "$out.x" "$out"',
    "all but the end": '"$cc" "$@" && truncate -s -1 "$out"',
    "another library": 'echo "int x;" | "$cc" -shared -fPIC -x c - -o "$out"',
    "one that needs another": 'echo "void gone(void); void kernel(void){gone();} void frame_run(void){gone();}" | '
    '"$cc" -shared -fPIC -Wl,-z,now -x c - -o "$out"',
    "a folder": 'mkdir "$out"',
    "a link to nothing": 'ln -s /nothing "$out"',
}


@pytest.mark.parametrize("lie", LIES)
def test_a_compiler_that_lies_is_found_out_and_nothing_is_kept(lie: str, tmp_path: Path) -> None:
    told = run(tmp_path / "cache", CC=script(tmp_path / "cc", LIES[lie], "exit 0"))
    assert "tanh reference" in told
    assert "warning:" in told
    assert "C compiler" in told.split("tanh reference")[1]
    assert not list((tmp_path / "cache").glob("*.entry"))


def test_a_compiler_that_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "note"
    hangs = script(tmp_path / "cc", f"echo $$ >> {note}", f"sleep 600 & echo $! >> {note}", "wait")
    told = run(tmp_path / "cache", CC=hangs, ASSAY_COMPILE_SECONDS="1")
    assert "was stopped after 1 seconds" in told
    assert "tanh reference" in told.splitlines()[-2]
    assert not list((tmp_path / "cache").glob("*.entry"))
    started = [int(line) for line in note.read_text().split()]
    assert len(started) >= 2
    assert not [pid for pid in started if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_after_a_hang_nobody_waits_again(tmp_path: Path) -> None:
    chain = Toolchain(Compiler(script(tmp_path / "cc", "sleep 600"), "hangs"))
    os.environ["ASSAY_COMPILE_SECONDS"] = "0.5"
    try:
        started = time.monotonic()
        with pytest.raises(TookTooLong, match=r"hint: set ASSAY_COMPILE_SECONDS"):
            chain.load([Kernel(f"void kernel(void) {{}} // {i}") for i in range(50)])
        assert time.monotonic() - started < 20  # not 50 × 0.5 s
        os.environ["ASSAY_COMPILE_SECONDS"] = "600"
        with pytest.raises(CompileFailed, match="not tried again"):
            chain.load([SOUND])
    finally:
        del os.environ["ASSAY_COMPILE_SECONDS"]


def test_one_that_left_the_group_holds_nobody_up(tmp_path: Path) -> None:
    note = tmp_path / "note"
    escaped = script(tmp_path / "cc", f"setsid sh -c 'echo $$ > {note}; sleep 20' &", "exit 0")
    started = time.monotonic()
    with pytest.raises(TookTooLong):
        Compilations(Compiler(escaped, ""), 1).run(["-o", str(tmp_path / "x.so")], "", tmp_path)
    assert time.monotonic() - started < 15
    os.kill(int(note.read_text()), signal.SIGKILL)


def test_an_interrupt_ends_compilers_too(tmp_path: Path) -> None:
    note = tmp_path / "note"
    hangs = script(tmp_path / "cc", f"echo $$ >> {note}", "sleep 600")
    environment = {**os.environ, "CC": hangs, "ASSAY_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert not [pid for pid in map(int, note.read_text().split()) if is_running(pid)]


@pytest.mark.parametrize("text", ["-1", "0", "soon", "nan"])
def test_a_limit_that_is_none_is_said(text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match="no number of seconds"):
        seconds_allowed({"ASSAY_COMPILE_SECONDS": text})
    assert seconds_allowed({}) == 120


# --- which one it is


def test_a_compiler_may_have_flags(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    wrapped = script(tmp_path / "my cc", f'echo "$1 $2" > {noted}; shift 2; exec "$cc" "$@"')
    told = run(tmp_path / "cache", CC=f"'{wrapped}' -one '-DTWO=\"2 3\"'")
    assert "tanh cpu" in told
    assert "warning:" not in told
    assert noted.read_text() == '-one -DTWO="2 3"\n'


def test_gcc_with_a_flag_works(tmp_path: Path) -> None:
    assert REAL is not None
    told = run(tmp_path / "cache", CC=f"{REAL.path} -O2")
    assert "tanh cpu" in told
    assert "warning:" not in told


@pytest.mark.parametrize("wanted", ["/nonexistent", "/etc/passwd", "no-such-compiler -m64", "'unbalanced"])
def test_one_that_cannot_be_run_is_said_and_another_is_used(wanted: str, tmp_path: Path) -> None:
    told = run(tmp_path / "cache", CC=wanted)
    assert told.count(f"CC is {wanted!r}, which is no program that can be run: ") == 1
    assert "is used instead" in told
    assert "tanh cpu" in told


def test_one_that_cannot_be_run_is_the_reason_if_there_is_no_other(tmp_path: Path) -> None:
    told = run(tmp_path / "cache", CC="/nonexistent", PATH="")
    assert "tanh reference there is no C compiler (CC is '/nonexistent'" in told


def test_the_list_of_targets_tells(tmp_path: Path) -> None:
    environment = {**os.environ, "CC": "/nonexistent", "ASSAY_CACHE_DIR": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-m", "assay.cli", "targets"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "CC is '/nonexistent', which is no program that can be run" in told


def test_compilers_are_told_apart(tmp_path: Path) -> None:
    one, two = (script(tmp_path / name, "exit 1") for name in ("one", "two"))
    found = [searched({"CC": text}).compiler for text in (one, two, f"{one} -m64", f"{one} -m32", f"{two} {one}")]
    identities = {each.identity for each in found if each is not None}
    assert len(identities) == len(found)
    assert searched({"CC": "", "PATH": ""}).compiler is None


def test_what_is_no_program_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "cc").write_bytes(b"\x7fELF of no machine")
    (tmp_path / "cc").chmod(0o755)
    told = run(tmp_path / "cache", CC=str(tmp_path / "cc"))
    assert "could not be run" in told
    assert "tanh reference" in told


# --- where it writes

FULL = """
import os, tempfile
statvfs = os.statvfs
def full(path):
    found = statvfs(path)
    values = list(found)
    if str(path).startswith(tempfile.gettempdir()):
        values[4] = 0
    return os.statvfs_result(values)
os.statvfs = full
"""


def test_a_full_folder_for_temporary_files_is_left_alone(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    watched = script(tmp_path / "cc", f'echo "$TMPDIR" > {noted}', 'exec "$cc" "$@"')
    (tmp_path / "tmp").mkdir()
    told = run(tmp_path / "cache", FULL, CC=watched, TMPDIR=str(tmp_path / "tmp"))
    assert "tanh cpu" in told
    assert noted.read_text().startswith("/dev/shm/assay-")
    assert not list((tmp_path / "tmp").iterdir())
    assert not list(Path("/dev/shm").glob(Path(noted.read_text().strip()).name))


def test_nowhere_to_write_is_a_reason(tmp_path: Path) -> None:
    nowhere = "from assay.targets.cpu import toolchain\ntoolchain._SPARE = ()\n"
    (tmp_path / "tmp").mkdir()
    told = run(tmp_path / "cache", FULL + nowhere, TMPDIR=str(tmp_path / "tmp"))
    assert "nowhere to write" in told
    assert "tanh reference" in told


# --- what is kept


def test_what_is_kept_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "cache")
    assert store is not None
    assert REAL is not None
    order: list[str] = []
    put, loaded = store.put, toolchain._loaded

    def noted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: (order.append(name), function(*arguments))[1]

    monkeypatch.setattr(store, "put", noted("put", put))
    monkeypatch.setattr(toolchain, "_loaded", noted("loaded", loaded))
    Toolchain(REAL, store).load([SOUND])
    assert order == ["loaded", "put"]
    Toolchain(REAL, store).load([SOUND])
    assert order == ["loaded", "put", "loaded"]


def test_a_kept_library_that_cannot_be_loaded_is_made_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "cache")
    assert store is not None
    assert REAL is not None
    chain = Toolchain(REAL, store)
    for content in (b"", b"\x7fELF", bytes(5000)):
        store.put(chain.artifacts.key(SOUND), content)
        assert Toolchain(REAL, store).load([SOUND])
        assert is_whole(store.get(chain.artifacts.key(SOUND)) or b"")


def test_a_library_with_a_part_missing_is_seen(tmp_path: Path) -> None:
    store = open_store(tmp_path / "cache")
    assert store is not None
    assert REAL is not None
    chain = Toolchain(REAL, store)
    chain.load([SOUND])
    whole = store.get(chain.artifacts.key(SOUND))
    assert whole is not None
    assert is_whole(whole)
    assert not [length for length in range(len(whole)) if is_whole(whole[:length])]
