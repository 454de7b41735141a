"""Writers that start at once: what was compiled for the very content of a GGUF file is found again by its hash.

The file is hashed whole, every time, while its tokenizer is made: nothing goes by names, sizes or dates of files. The
hash is that of the mapped memory from which weights are read. An entry of the store holds the digest of the tokenizer,
which takes long to compute, and the decoder's program (`assay.runtime.kept`); graphs are built when somebody asks for
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import ml_dtypes
import numpy as np

import assay
from assay.errors import BadArgument
from assay.frontends.checkpoint.gguf import MAGIC
from assay.frontends.checkpoint.imported import ImportedModel
from assay.frontends.checkpoint.reading import open_checkpoint
from assay.frontends.checkpoint.stored import Checkpoint
from assay.ir.building import collector_paused
from assay.jobs.models import JobModel, KeptModel
from assay.jobs.tokenizers import Tokenizer, make_tokenizer
from assay.runtime.code import code_digest
from assay.runtime.kept import KeptProgram, program_bytes, read_program
from assay.runtime.options import SessionOptions
from assay.store import Store, digest, open_store
from assay.targets.cpu.toolchain import Toolchain, shared_toolchain

if TYPE_CHECKING:
    from assay.ir.graph import Graph

_PREFIX = "tokenizer."
_DIGEST = len("sha256:") + 64
_MAKERS = ("limits.py", "memory.py", "ir", "ops", "passes", "frontends", "runtime", "targets", "jobs")
"""The parts of this package that make a program what it is."""

_Made = TypeVar("_Made")


class _Background(threading.Thread, Generic[_Made]):
    """Work that goes on beside this thread."""

    def __init__(self, work: Callable[[], _Made]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._made: list[_Made] = []
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Do the work."""
        try:
            self._made.append(self._work())
        except BaseException as error:  # it is raised where the result is asked for
            self._error = error

    def result(self) -> _Made:
        """What came of it, waited for."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._made[0]


class _Source(NamedTuple):
    """A file that was read: its tensors, the tokenizer, a hash of all bytes, and one of what they are read with."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    content: str
    reader: str


@collector_paused()
def open_kept(path: Path, options: SessionOptions) -> tuple[JobModel, Tokenizer] | None:
    """The decoder and the tokenizer of a GGUF file; the decoder's program is from the store, or put there if it is new.

    None if this is no such file, if it has no tokenizer, or if the options ask for more than native code: then there is
    nothing to be kept.
    """
    store, toolchain = _places(options) if _is_gguf(path) else (None, None)
    source = None if store is None or toolchain is None else _source(path)
    if store is None or toolchain is None or source is None:
        return None
    checkpoint, tokenizer, content, reader = source
    key = digest("kept writer", reader, toolchain.identity, repr(options.limits), content)
    name, entry = f"sha256:{content}:decoder", store.get(key)
    program = None if entry is None else _read(entry[_DIGEST:], checkpoint, toolchain, options)
    if entry is not None and program is not None:
        kept = KeptModel(program, lambda: _decoder(checkpoint, path))
        return JobModel(kept, name, options), replace(tokenizer, known_digest=entry[:_DIGEST].decode("ascii"))
    graph = _decoder(checkpoint, path)
    decoder = JobModel(graph, name, options)
    made = program_bytes(graph, decoder.session.only_program, _arrays(checkpoint))
    if made is not None:
        store.put(key, tokenizer.digest.encode("ascii") + made)
    return decoder, tokenizer


def _source(path: Path) -> _Source | None:
    """What is in a GGUF file; None if it has no tokenizer. The checkpoint's facts are without those of the tokenizer,
    which take most memory, and have served."""
    checkpoint = open_checkpoint(path)
    facts = {name.removeprefix(_PREFIX): fact for name, fact in checkpoint.facts.items() if name.startswith(_PREFIX)}
    if "ggml.model" not in facts:
        return None
    hashed = _Background(lambda: (checkpoint.digest(), code_digest(_MAKERS)))
    tokenizer = make_tokenizer({}, facts)
    content, code = hashed.result()
    reader = digest(code, assay.__version__, np.__version__, ml_dtypes.__version__, tokenizer.version)
    left = {name: fact for name, fact in checkpoint.facts.items() if not name.startswith(_PREFIX)}
    return _Source(replace(checkpoint, facts=left), tokenizer, content, reader)


def _places(options: SessionOptions) -> tuple[Store | None, Toolchain | None]:
    """Where programs are kept, and what makes native code; None if the options ask for other programs."""
    plain = options.target == "cpu" and options.mode == "exact" and not options.decomposed and options.optimizes
    if not plain or options.disabled_passes:
        return None, None
    return open_store(options.cache if isinstance(options.cache, str) else None), shared_toolchain()


def _is_gguf(path: Path) -> bool:
    """Whether this is such a file, and can be read; what is wrong with another one, its reader says."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _arrays(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    return {name: tensor.memory for name, tensor in checkpoint.tensors.items()}


def _read(content: bytes, checkpoint: Checkpoint, toolchain: Toolchain, options: SessionOptions) -> KeptProgram | None:
    """The program in an entry; None if it is damaged."""
    try:
        return read_program(content, _arrays(checkpoint), toolchain, options.threads)
    except (ValueError, TypeError, LookupError):
        return None


def _decoder(checkpoint: Checkpoint, path: Path) -> Graph:
    # Imported here, since that is all recipes.
    from assay.frontends.checkpoint.models import import_checkpoint

    return decoder_of(import_checkpoint(checkpoint, path, logits="last"))


def decoder_of(model: ImportedModel) -> Graph:
    """The graph of a model that continues texts; BadArgument if it does something else."""
    if "decoder" not in model.graphs or "encoder" in model.graphs:
        raise BadArgument(f"a model of the family '{model.family}' does not continue texts")
    return model.graphs["decoder"]
