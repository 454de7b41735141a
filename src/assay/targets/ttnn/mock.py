"""The set-up under which the library opens a card that is not there.

The library finds its own files under a *runtime root*. Ours is a folder of links into the installed package, with a
stand-in for the compiler of the card's kernels, which no package carries. Kernels are compiled but never run where
there is no card, so an empty program does for all of them. All that happens before a kernel would run is real: the
library checks arguments, infers results, plans programs and allocates the card's memory.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread

from assay.store import digest, open_store
from assay.targets.ttnn.cards import Card

_COMPILER = "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"
_PROGRAM = "runtime/sfpi/kernel.elf"
_CLUSTER = "cluster.yaml"
_LINKS = ("tt_metal", "ttnn", "build", "runtime/hw")
_SCRIPT = """#!/bin/sh
# Stands in for the compiler of the card's kernels, where there is no card and none is ever run.
if [ "$1" = "--version" ]; then echo "riscv-tt-elf-g++ (stand-in) 15.1.0"; exit 0; fi
before=; object=; rules=; source=
for word in "$@"; do
    case "$before" in -o) object="$word";; -MF) rules="$word";; esac
    case "$word" in *.cc|*.cpp) source="$word";; esac
    before="$word"
done
if [ -n "$rules" ]; then echo "$object: $source" > "$rules"; fi
case "$object" in
    "") ;;
    *.elf) cat "${0%/compiler/bin/*}/kernel.elf" > "$object";;
    *) : > "$object";;
esac
"""
_MOST_KERNELS = 20_000
"""Kernels that are kept from run to run; beyond that all are made anew."""
_OLD = "old-kernels-"


def mock_environment(library: Path, card: Card) -> dict[str, str]:
    """The variables under which the library, installed in `library`, opens `card` without having it."""
    root = _root(library, card)
    return {
        "TT_METAL_LOGGER_LEVEL": "fatal",
        "TT_METAL_DISABLE_BACKTRACE": "1",
        "LOGURU_LEVEL": "ERROR",
        "TT_METAL_RUNTIME_ROOT": str(root),
        "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(root / _CLUSTER),
        "TT_METAL_CACHE": f"{_kernels(root)}/",
    }


def _root(library: Path, card: Card) -> Path:
    """The runtime root of a card; made if there is none that was made in the same way for the same package."""
    content = _content(card)
    links = {name: library / name for name in _LINKS}
    key = digest(*(f"{name} {place}" for name, place in links.items()), *(data for _, data in sorted(content.items())))
    place = _folder() / key[:16]
    if place.is_dir():
        return place
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{key[:16]}.", dir=place.parent))
    for name, data in content.items():
        (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        (unfinished / name).write_bytes(data)
    (unfinished / _COMPILER).chmod(0o700)
    for name, target in links.items():
        (unfinished / name).symlink_to(target)
    try:
        unfinished.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished)
    return place


def _content(card: Card) -> Mapping[str, bytes]:
    return {_COMPILER: _SCRIPT.encode(), _PROGRAM: empty_program(), _CLUSTER: card.description().encode()}


def _kernels(root: Path) -> Path:
    """Where the library keeps the stand-ins of compiled kernels. Very many are put aside, and removed while work goes
    on, as that may take minutes."""
    place = root / "kernels"
    if sum(1 for _ in place.glob("*/kernels/*/*")) > _MOST_KERNELS:
        with suppress(OSError):  # another process was faster
            place.rename(root / f"{_OLD}{os.getpid()}")
    place.mkdir(exist_ok=True)
    for old in root.glob(f"{_OLD}*"):
        Thread(target=shutil.rmtree, args=(old,), kwargs={"ignore_errors": True}, daemon=True).start()
    return place


def _folder() -> Path:
    """Where set-ups are kept: in the store's folder, or for this process alone where there is no store."""
    store = open_store()
    return Path(_of_this_process()) if store is None else store.folder / "ttnn"


@cache
def _of_this_process() -> str:
    return tempfile.mkdtemp(prefix="assay-ttnn-")


# --- an empty program


def empty_program(address: int = 0x8000) -> bytes:
    """The smallest 32-bit RISC-V program that the library loads: one instruction (return) at its entry, with the
    sections that the loader looks for."""
    names = ["", ".text", ".rela.text", ".symtab", ".strtab", ".shstrtab"]
    strings = b"".join(name.encode() + b"\0" for name in names)
    code = struct.pack("<I", 0x8067)
    symbols = bytes(16) + struct.pack("<IIIBBH", 1, address, len(code), 0x12, 0, 1)
    relocations = struct.pack("<IIi", address, 1 << 8, 0)  # of the kind that changes nothing
    # kind, flags, address, content, link, info, alignment, size of an entry
    sections = [
        (0, 0, 0, b"", 0, 0, 0, 0),
        (1, 6, address, code, 0, 0, 4, 0),
        (4, 0x40, 0, relocations, 3, 1, 4, 12),
        (2, 0, 0, symbols, 4, 1, 4, 16),
        (3, 0, 0, b"\0_start\0", 0, 0, 1, 0),
        (3, 0, 0, strings, 0, 0, 1, 0),
    ]
    body, table, start = b"", b"", 52 + 32
    for name, (kind, flags, place, content, link, info, alignment, entry) in zip(names, sections, strict=True):
        at, offset = sum(len(each) + 1 for each in names[: names.index(name)]), start + len(body)
        row = (at, kind, flags, place, offset if kind else 0, len(content), link, info, alignment, entry)
        table += struct.pack("<10I", *row)
        body += content + bytes(-len(content) % 4)
    segment = struct.pack("<8I", 1, start, address, address, len(code), len(code), 5, 4)
    numbers = (2, 243, 1, address, 52, start + len(body), 0, 52, 32, 1, 40, len(sections), len(sections) - 1)
    header = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", *numbers)
    return header + segment + body + table
