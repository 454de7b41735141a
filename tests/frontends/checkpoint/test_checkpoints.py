"""Checkpoints hold what those who wrote them say; what is damaged or more than data is refused, and nothing is run."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.checkpoint.checkpoint_files import FACTS, WRITERS, Calls, namespace
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize
from safetensors.torch import load_file

from assay.errors import AssayError, ImportFailed, LimitExceeded
from assay.frontends.checkpoint import Checkpoint, StoredTensor, open_checkpoint
from assay.frontends.checkpoint import gguf as gguf_reader
from assay.frontends.checkpoint.stored import FileMemory
from assay.limits import Limits

TIGHT = Limits(model_bytes=1 << 20, text_bytes=1 << 19, nodes=2_000, tensor_bytes=1 << 20, sequence_length=10_000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint of each kind."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, write in WRITERS.items():
        write(folder / name)
    return folder


def same(stored: StoredTensor, tensor: torch.Tensor) -> bool:
    """Whether these are the same bits."""
    assert stored.shape == stored.array().shape == tuple(tensor.shape)
    wanted = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return stored.array().tobytes() == wanted.numpy().tobytes()


def test_gguf_files_hold_what_another_reader_finds(small: Path) -> None:
    path = small / "small.gguf"
    found, reader = open_checkpoint(path), GGUFReader(path)
    assert {name: list(value) if isinstance(value, np.ndarray) else value for name, value in found.facts.items()} == {
        **FACTS,
        "general.architecture": "toy",
    }
    assert len(reader.tensors) == len(found.tensors) == 14
    for theirs in reader.tensors:
        plain = theirs.tensor_type is GGMLQuantizationType.I32
        expected = theirs.data if plain else dequantize(theirs.data, theirs.tensor_type)
        np.testing.assert_array_equal(np.asarray(found.tensors[theirs.name].array(), expected.dtype), expected)


@pytest.mark.parametrize("window", [1, 8, 9, 10, 11, 27, 64])
def test_lists_of_texts_are_read_whatever_part_of_them_is_seen_at_once(
    window: int, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_reader, "_WINDOW", window)
    found = open_checkpoint(small / "small.gguf")
    assert found.facts["toy.words"] == FACTS["toy.words"]
    assert found.facts["toy.scores"].tolist() == FACTS["toy.scores"], "what follows is read from its beginning"


def test_a_text_in_a_list_may_be_only_so_long(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "long.gguf", "toy")
    writer.add_array("toy.words", ["a", "b" * 5000, "c"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert list(map(len, open_checkpoint(tmp_path / "long.gguf").facts["toy.words"])) == [1, 5000, 1]
    with pytest.raises(LimitExceeded):
        open_checkpoint(tmp_path / "long.gguf", Limits(sequence_length=4000))


def test_gguf_of_version_2_is_the_same(small: Path, tmp_path: Path) -> None:
    data = bytearray((small / "small.gguf").read_bytes())
    data[4] = 2
    (tmp_path / "two.gguf").write_bytes(data)
    found, whole = open_checkpoint(tmp_path / "two.gguf"), open_checkpoint(small / "small.gguf")
    assert found.tensors.keys() == whole.tensors.keys()


def test_safetensors_files_hold_what_their_library_finds(small: Path) -> None:
    path = small / "small.safetensors"
    found, theirs = open_checkpoint(path), load_file(path)
    assert found.facts == {"format": "pt"}
    assert found.tensors.keys() == theirs.keys()
    assert all(same(found.tensors[name], tensor) for name, tensor in theirs.items())


def flat(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(content, dict | list | tuple):
        yield name, content
        return
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield from flat(value, f"{name}.{key}" if name else str(key))


@pytest.mark.parametrize("name", ["small.pt", "old.pt"])
def test_torch_files_hold_what_torch_finds(name: str, small: Path) -> None:
    found = open_checkpoint(small / name)
    theirs = dict(flat(torch.load(small / name, weights_only=True)))
    assert {**found.tensors, **found.facts}.keys() == theirs.keys()
    for key, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert same(found.tensors[key], value), key
        else:
            assert found.facts[key] == value


def test_folders_join_their_files(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    (tmp_path / "config.json").write_text('{"model_type": "toy", "hidden_size": 4}')
    save_file({"a": torch.ones(2)}, tmp_path / "one.safetensors")
    save_file({"b": torch.ones(3)}, tmp_path / "two.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}')
    found = open_checkpoint(tmp_path)
    assert (found.kind, sorted(found.tensors), found.facts["config.model_type"]) == ("folder", ["a", "b"], "toy")
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(ImportFailed, match=r"'two\.safetensors' is missing"):
        open_checkpoint(tmp_path)
    index.write_text('{"weight_map": {"a": "../one.safetensors"}}')
    with pytest.raises(ImportFailed, match="names no files beside it"):
        open_checkpoint(tmp_path)


def test_weights_stay_in_their_file_and_cannot_be_written(small: Path) -> None:
    for name in WRITERS:
        for tensor in open_checkpoint(small / name).tensors.values():
            found = tensor.array()
            assert not found.size or not found.flags.writeable
    stored = open_checkpoint(small / "small.safetensors").tensors["float32"].array()
    assert isinstance(stored.base, np.ndarray)


def test_the_digest_is_that_of_the_content(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    shutil.copy(small / "small.gguf", copy)
    assert open_checkpoint(copy).digest() == open_checkpoint(small / "small.gguf").digest()
    before = open_checkpoint(copy)
    copy.unlink()
    copy.write_bytes((small / "small.gguf").read_bytes()[:-1])
    assert before.digest() == open_checkpoint(small / "small.gguf").digest(), "of the file that tensors are read from"
    copy.write_bytes((small / "small.gguf").read_bytes())
    with copy.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert open_checkpoint(copy).digest() != open_checkpoint(small / "small.gguf").digest()


def test_the_digest_is_of_what_is_mapped_and_leaves_nothing_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "large", 24 << 20
    path.write_bytes(np.arange(size // 4, dtype=np.uint32).tobytes())
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    memory = FileMemory(path, Limits())
    path.unlink()
    path.write_bytes(b"another file of this name")
    assert memory.digest() == expected
    assert resident(memory.bytes) < size / 4
    assert int(memory.bytes[-4:].view(np.uint32)[0]) == size // 4 - 1


def resident(array: Any) -> int:
    """The bytes in memory of the mapping that an array lies in."""
    place = array.__array_interface__["data"][0]
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(f"{place:x}-"))
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


# --- what is refused


@pytest.mark.parametrize("old", [False, True])
def test_no_name_is_called(old: bool, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "evil.pt"
    torch.save({"a": Calls(Path.touch, marker)}, path, _use_new_zipfile_serialization=not old)
    with pytest.raises(ImportFailed, match="what is pickled calls") as caught:
        open_checkpoint(path)
    assert str(path) in caught.value.where
    assert not marker.exists()
    torch.load(path, weights_only=False)  # the file is what it is said to be
    assert marker.exists()


def test_objects_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "with.pt"
    torch.save({"options": namespace(), "a": torch.ones(1)}, path)
    with pytest.raises(ImportFailed, match=r"Namespace|instruction") as caught:
        open_checkpoint(path)
    assert "state dict" in caught.value.hint


def test_limits_are_checked_first(small: Path) -> None:
    with pytest.raises(LimitExceeded):
        open_checkpoint(small / "small.gguf", Limits(model_bytes=1000))
    with pytest.raises(LimitExceeded):
        open_checkpoint(small / "small.safetensors", Limits(tensor_bytes=10))
    with pytest.raises(LimitExceeded):
        open_checkpoint(small / "small.pt", Limits(nodes=5))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut off, put in or repeated, mostly near the front, where they mean something."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = min(int(rng.expovariate(1 / rng.choice((40, 400, 4000)))), len(changed) - 1)
        what = rng.randrange(5)
        if what == 0:
            changed[at] = rng.randrange(256)
        elif what == 1:
            changed[at : at + 8] = rng.choice((0, 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1)).to_bytes(8, "little")
        elif what == 2:
            del changed[rng.randrange(len(changed)) :]
            changed = changed or bytearray(b"\0")
        elif what == 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            changed[at:at] = changed[at : at + rng.randrange(1, 200)]
    return bytes(changed)


def read_whole(found: Checkpoint) -> None:
    for tensor in found.tensors.values():
        tensor.array().tobytes()


def outcome(path: Path) -> str:
    """What becomes of a file: read, or refused; which error it is if that says too little."""
    try:
        read_whole(open_checkpoint(path, TIGHT))
    except AssayError as error:
        return "refused" if str(path) in error.where and error.hint else str(error)
    return "read"


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_are_read_or_refused(name: str, small: Path, tmp_path: Path) -> None:
    """With an error that names the file; some of both."""
    whole, path, seen = (small / name).read_bytes(), tmp_path / name, set[str]()
    for number in range(400):
        path.write_bytes(damaged(whole, random.Random(f"{name} {number}")))
        seen.add(outcome(path))
    assert seen == {"read", "refused"}
