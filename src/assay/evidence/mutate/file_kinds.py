"""Kinds of files that are damaged: weights and jobs. Each says which files are valid, how they are damaged besides the
ways that suit all files, and what reading one means."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.evidence.mutate.file_corpus import (
    CONFIGURATION,
    archived,
    gguf_files,
    job_files,
    safetensors_files,
    torch_files,
)
from assay.evidence.mutate.mutations import ABSURD, RAW, RawMutation
from assay.frontends.checkpoint import load_model
from assay.frontends.checkpoint.imported import ImportedModel
from assay.frontends.checkpoint.reading import open_checkpoint
from assay.ir.dims import evaluate, symbols
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.ir.types import TensorType
from assay.limits import Limits
from assay.runtime.session import Session, SessionOptions

MARK = "a-mark-that-code-was-run"
"""The file that hostile pickles would leave."""


_FRONT = 2048
"""Bytes at the beginning, which say what is in a file."""


@dataclass(frozen=True)
class FileKind:
    """`use` reads a file, in a folder of its own, and uses what is in it; it raises AssayErrors."""

    name: str
    file: str
    samples: Callable[[], Sequence[bytes]]
    damages: Sequence[RawMutation]
    use: Callable[[Path, str, Limits], None]

    def mutant(self, files: Sequence[bytes], index: int, seed: int) -> tuple[str, bytes]:
        """Mutant number `index` of a run: what was done to it, and its bytes."""
        rng = random.Random(f"{seed}/{self.name}/{index}")
        data, damage = rng.choice(files), rng.choice(rng.choice((RAW, self.damages)))
        made = damage(data, rng)
        return damage.__name__, rng.choice(self.damages)(made, rng) if made and rng.random() < 0.2 else made


# --- damages


def absurd_number(data: bytes, rng: random.Random) -> bytes:
    """A number of four or eight bytes is extreme, most often near the beginning."""
    width, form = rng.choice(((8, "<q"), (8, "<q"), (4, "<i")))
    room = max(len(data) - width, 1)
    at = rng.randrange(min(room, _FRONT) if rng.random() < 0.8 else room)
    number = rng.choice(ABSURD)
    packed = struct.pack(form, number if width == 8 else max(min(number, 2**31 - 1), -(2**31)))
    return data[:at] + packed + data[at + width :]


def damaged_front(data: bytes, rng: random.Random) -> bytes:
    """Where a file says what is in it, something is damaged."""
    return rng.choice(RAW)(data[:_FRONT], rng) + data[_FRONT:]


def _replaced(data: bytes, pattern: bytes, rng: random.Random, made: Callable[[bytes], bytes]) -> bytes:
    """One of the places that a pattern is found at has something else."""
    found = list(re.finditer(pattern, data[: 1 << 16]))
    if not found:
        return data
    place = rng.choice(found)
    return data[: place.start()] + made(place.group()) + data[place.end() :]


def absurd_word(data: bytes, rng: random.Random) -> bytes:
    """A number that is written out is extreme."""
    return _replaced(data, rb"-?\d+", rng, lambda _: str(rng.choice((*ABSURD, 10**400, 0.5, "1e999"))).encode())


def other_word(data: bytes, rng: random.Random) -> bytes:
    """A word stands in the place of another."""
    words = re.findall(rb"[A-Za-z_.]{2,}", data[: 1 << 16]) or [b"x"]
    return _replaced(data, rb"[A-Za-z_.]{2,}", rng, lambda _: rng.choice(words))


def other_sign(data: bytes, rng: random.Random) -> bytes:
    """A mark is another one, or is not there."""
    marks = (b"", b"{", b"}", b"[", b"]", b"(", b")", b"%", b'"', b"=", b"<", b"?", b"\0")
    return _replaced(data, rb"[^\w\s]", rng, lambda _: rng.choice(marks))


def moved_line(data: bytes, rng: random.Random) -> bytes:
    """A line stands elsewhere, twice, or nowhere."""
    lines = data.split(b"\n")
    line = lines[at := rng.randrange(len(lines))]
    if rng.random() < 0.6:
        del lines[at]
    for _ in range(rng.choice((0, 1, 1, 2))):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def deep_marks(data: bytes, rng: random.Random) -> bytes:
    """Marks within marks, many deep."""
    mark = rng.choice((b"[", b"{", b"(", b"<", b'{"a":', b"loop(["))
    at = rng.randrange(len(data) + 1)
    return data[:at] + mark * rng.choice((50, 2_000, 100_000)) + data[at:]


def odd_table(data: bytes, rng: random.Random) -> bytes:
    """An entry of the table in front of tensors says something else; the table is as long as it says."""
    try:
        (length,) = struct.unpack("<Q", data[:8])
        table = json.loads(data[8 : 8 + length])
        name = rng.choice(sorted(table))
        odd: Sequence[Any] = (*ABSURD, None, "", [], {}, [0, 2**63], [-1, 4], [8, 4], "F64", "U8", "nonsense", 1e300)
        key = rng.choice(("dtype", "shape", "data_offsets"))
        table[name] = {**table[name], key: rng.choice(odd)} if rng.random() < 0.8 else rng.choice(odd)
    except (ValueError, TypeError, struct.error):
        return data
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _records(data: bytes) -> dict[str, bytes] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name.removeprefix("archive/"): archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, RuntimeError, zipfile.LargeZipFile):
        return None


def damaged_record(data: bytes, rng: random.Random) -> bytes:
    """A record of an archive is damaged, and the archive is whole."""
    records = _records(data)
    if not records:
        return data
    name = "data.pkl" if rng.random() < 0.8 and "data.pkl" in records else rng.choice(sorted(records))
    records[name] = rng.choice((*RAW, absurd_number, other_word))(records[name] or b"\0", rng)
    return archived(records)


def called_code(data: bytes, rng: random.Random) -> bytes:
    """A pickle calls something that would leave a mark."""
    hostile = rng.choice((b"cos\nsystem\n", b"cposix\nsystem\n", b"cbuiltins\nexec\n", b"cbuiltins\neval\n"))
    command = f"touch {MARK}" if b"system" in hostile else f"open('{MARK}', 'w')"
    call = hostile + b"(X" + struct.pack("<I", len(command)) + command.encode() + b"tR"
    records = _records(data)
    pickled = data if records is None else records.get("data.pkl", b"")
    places = [found.start() for found in re.finditer(rb"ctorch|ccollections|X|\}\(", pickled)] or [0]
    at = rng.choice(places)
    made = pickled[:at] + call + (b"0" if rng.random() < 0.5 else b"") + pickled[at:]
    return made if records is None else archived({**records, "data.pkl": made})


# --- what reading means


def _step(graph: Graph, target: str, limits: Limits) -> None:
    """Run a graph on small inputs."""
    session = Session(graph, SessionOptions(target=target, limits=limits))
    kinds = zip(graph.input_names, (value.type for value in graph.inputs), strict=True)
    session.run({name: _ones(kind) for name, kind in kinds if isinstance(kind, TensorType)})


def _ones(kind: TensorType) -> Array:
    sizes = [evaluate(dim, dict.fromkeys(symbols(dim), 2)) for dim in kind.shape or ()]
    return np.ones([2 if size is None else size for size in sizes], kind.dtype.numpy)


def _run_model(model: ImportedModel, target: str, limits: Limits) -> None:
    for graph in model.graphs.values():
        _step(graph, target, limits)


def _use_gguf(path: Path, target: str, limits: Limits) -> None:
    from assay.jobs.tokenizers import make_tokenizer

    model = load_model(path, limits=limits)
    tokenizer = make_tokenizer(model.tokenizer.files, model.tokenizer.facts, limits)
    tokenizer.encode("ab <end> c")
    _run_model(model, target, limits)


def _use_safetensors(path: Path, target: str, limits: Limits) -> None:
    (path.parent / "config.json").write_text(json.dumps(CONFIGURATION))
    _read_all(path, limits)
    _run_model(load_model(path.parent, limits=limits), target, limits)


def _use_torch(path: Path, target: str, limits: Limits) -> None:
    _read_all(path, limits)


def _read_all(path: Path, limits: Limits) -> None:
    for stored in open_checkpoint(path, limits).tensors.values():
        np.ascontiguousarray(stored.memory).view(np.uint8).max(initial=0)


def _use_job(path: Path, target: str, limits: Limits) -> None:
    from assay.jobs.job import read_job, read_text

    job = read_job(path)
    assert read_text(job.text).text == job.text, "a job that is read is written otherwise"


_KINDS = (
    FileKind("gguf", "model.gguf", gguf_files, (absurd_number, damaged_front, other_word, absurd_word), _use_gguf),
    FileKind(
        "safetensors",
        "model.safetensors",
        safetensors_files,
        (absurd_number, damaged_front, absurd_word, other_word, other_sign, deep_marks, odd_table),
        _use_safetensors,
    ),
    FileKind(
        "torch",
        "model.pt",
        torch_files,
        (absurd_number, damaged_front, other_word, damaged_record, called_code),
        _use_torch,
    ),
    FileKind(
        "job",
        "a.job",
        job_files,
        (absurd_word, other_word, other_sign, moved_line, deep_marks, absurd_number),
        _use_job,
    ),
)
FILE_KINDS: Mapping[str, FileKind] = {kind.name: kind for kind in _KINDS}
"""By name."""


def refusal(error: AssayError) -> str | None:
    """What is wrong with an error that a file is refused by; None if nothing is. Memory that was asked for and was not
    there was asked for before its size was looked at."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 16:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(each, MemoryError) for each in causes):
        return f"memory was asked for and not there: {error}"
    return None
