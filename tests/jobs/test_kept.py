"""Writers that start from what an earlier process compiled: the same tokens, nothing stale, little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("gguf")
from jobs.gguf_writers import PROMPT, write_gguf

from assay.errors import RunStopped
from assay.frontends.checkpoint import load_model, open_checkpoint
from assay.jobs import kept
from assay.jobs.generate import Sampling
from assay.jobs.pipelines import TextWriter, open_writer
from assay.runtime.options import SessionOptions
from assay.targets.budget import Budget
from assay.targets.grown import GrownTensor

MOST = Sampling(most=24)
UNUSED = (
    "torch",
    "jinja2",
    "numpy.random",
    "importlib.metadata",
    "assay.frontends.checkpoint.recipes",
    "assay.passes",
    "assay.processes",
    "assay.runtime.session",
    "assay.targets.cpu.target",
    "assay.targets.shared.planner",
)
"""What a start from a kept program does not take."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.gguf"
    write_gguf(found)
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def opened(path: Path, cache: Path, **more: Any) -> TextWriter:
    return open_writer(path, SessionOptions(**{"target": "cpu", "cache": str(cache), **more}))


def is_kept(writer: TextWriter) -> bool:
    return writer.decoder._kept is not None


def compiled_tokens(path: Path) -> tuple[int, ...]:
    """What a writer makes whose model was built and compiled anew."""
    return open_writer(load_model(path, logits="last"), SessionOptions(target="cpu"))(PROMPT, MOST).tokens


def test_a_second_start_takes_the_kept_program_and_writes_the_same(path: Path, cache: Path) -> None:
    first, second = opened(path, cache), opened(path, cache)
    assert (is_kept(first), is_kept(second)) == (False, True)
    assert first(PROMPT, MOST).tokens == second(PROMPT, MOST).tokens == compiled_tokens(path)
    assert len(set(first(PROMPT, MOST).tokens)) > 1
    assert first.decoder.digest == second.decoder.digest == f"sha256:{load_model(path).digest}:decoder"
    assert first.tokenizer.digest == second.tokenizer.digest
    assert first.job(MOST, False).digest == second.job(MOST, False).digest


def test_weights_are_read_where_the_file_is_mapped(path: Path, cache: Path) -> None:
    opened(path, cache)
    writer = opened(path, cache)
    assert writer.decoder._kept is not None
    constants = writer.decoder._kept.program.code.constants
    stored = sum(tensor.nbytes for tensor in open_checkpoint(path).tensors.values())
    own = [each for each in constants if not is_mapped(each)]
    assert sum(each.nbytes for each in constants) - sum(each.nbytes for each in own) == stored
    assert sum(each.nbytes for each in own) < stored / 4


def is_mapped(array: Any) -> bool:
    """Whether an array lies in a mapped file."""
    place = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= place < end:
            return line.endswith(".gguf")
    return False


def test_a_file_that_changed_is_noticed_whatever_it_says_of_itself(path: Path, cache: Path) -> None:
    before = opened(path, cache)(PROMPT, MOST).tokens
    told = path.stat()
    write_gguf(path, seed=1)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (told.st_size, told.st_mtime_ns)
    writer = opened(path, cache)
    assert not is_kept(writer)
    assert writer(PROMPT, MOST).tokens == compiled_tokens(path) != before
    assert opened(path, cache)(PROMPT, MOST).tokens == compiled_tokens(path)


def test_one_byte_of_a_weight_is_noticed(path: Path, cache: Path) -> None:
    opened(path, cache)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert not is_kept(opened(path, cache))


def test_other_code_limits_and_versions_have_programs_of_their_own(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path, cache)
    limits = SessionOptions().limits
    other = type(limits)(tensor_bytes=limits.tensor_bytes // 2)
    assert not is_kept(opened(path, cache, limits=other))
    monkeypatch.setattr(kept, "code_digest", lambda parts: "other")
    assert not is_kept(opened(path, cache))
    monkeypatch.undo()
    assert is_kept(opened(path, cache))
    monkeypatch.setattr(np, "__version__", "0")
    assert not is_kept(opened(path, cache))


@pytest.mark.parametrize(
    "options",
    [{"target": "reference"}, {"optimize": False}, {"decomposed": True}, {"disabled_passes": ("fusion",)}],
    ids=str,
)
def test_options_that_ask_for_other_programs_get_them(path: Path, cache: Path, options: dict[str, Any]) -> None:
    opened(path, cache)
    writer = opened(path, cache, **options)
    assert not is_kept(writer)
    assert writer(PROMPT, Sampling(most=3)).tokens == compiled_tokens(path)[:3]


def test_an_entry_that_holds_something_else_is_made_again(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path, cache)
    with monkeypatch.context() as patch:
        patch.setattr(kept.Store, "get", lambda self, key: b"no program")
        assert not is_kept(opened(path, cache))
    assert is_kept(opened(path, cache))


def test_the_session_of_a_kept_model_is_made_when_it_is_asked_for(path: Path, cache: Path) -> None:
    opened(path, cache)
    writer = opened(path, cache)
    tokens = writer(PROMPT, MOST).tokens
    assert writer.decoder.session.explain().nodes
    assert writer.decoder.session is writer.decoder.session
    seen: list[Any] = []
    job = writer.job(Sampling(most=1), False)
    feeds = {"decoder": writer.decoder, "tokenizer": writer.tokenizer, "prompt": PROMPT}
    stops: dict[str, Any] = {"stop_tokens": [], "stop_texts": np.array([], object)}
    watched = {"decoder/model.layers.0": lambda name, value: seen.append(value.shape)}
    assert job.run({**feeds, **stops}, watched=watched)["tokens"].tolist() == [tokens[0]]
    assert seen == [(1, 1, 128)], "the rest of the prompt is remembered"


def test_the_model_behind_a_kept_program_is_that_of_the_mapped_file(path: Path, cache: Path) -> None:
    opened(path, cache)
    writer = opened(path, cache)
    path.unlink()  # its name has another file now, or none
    write_gguf(path, seed=1)
    step = {"tokens": np.array([[5]]), **writer.decoder.begin().values}
    assert writer.decoder._kept is not None
    found = writer.decoder._kept.program.run(step)["logits"]
    np.testing.assert_array_equal(found, writer.decoder.session.run(step)["logits"])


def test_caches_of_a_kept_program_grow_where_they_lie(path: Path, cache: Path) -> None:
    opened(path, cache)
    decoder = opened(path, cache).decoder
    _, state = decoder.step(decoder.begin(), np.array([[5, 6]]))
    _, longer = decoder.step(state, np.array([[7]]))
    first, second = (each.values["layers.0.key"] for each in (state, longer))
    assert isinstance(first, GrownTensor)
    assert np.shares_memory(first.array, second.array)


def test_a_budget_ends_a_run_of_a_kept_program(path: Path, cache: Path) -> None:
    opened(path, cache)
    decoder = opened(path, cache).decoder
    budget = Budget()
    budget.cancel()
    assert decoder._kept is not None
    with pytest.raises(RunStopped):
        decoder._kept.program.run({"tokens": np.array([[5]]), **decoder.begin().values}, budget=budget)
    assert decoder.step(decoder.begin(), np.array([[5]]))[0].shape == (1, 262), "it can be used again"


START = """
import json, sys
from assay.jobs.pipelines import open_writer
from assay.jobs.generate import Sampling
writer = open_writer(sys.argv[1])
tokens = writer(sys.argv[2], Sampling(most=3)).tokens
figures = {line.split(":")[0]: int(line.split()[1]) << 10 for line in open("/proc/self/status") if "kB" in line}
print(json.dumps({"kept": writer.decoder._kept is not None, "tokens": tokens, "modules": list(sys.modules), **figures}))
"""


def started(path: Path) -> dict[str, Any]:
    """What a process of its own tells that writes three tokens; it has the cache of all tests."""
    environment = {**os.environ, "ASSAY_TARGET": "cpu"}
    command = [sys.executable, "-c", START, str(path), PROMPT]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def test_a_process_with_a_kept_program_imports_no_compiler(path: Path) -> None:
    write_gguf(path, seed=2)
    first, second = started(path), started(path)
    assert (first["kept"], second["kept"]) == (False, True)
    assert first["tokens"] == second["tokens"]
    loaded = {name for name in second["modules"] for used in UNUSED if f"{name}.".startswith(f"{used}.")}
    assert loaded == set()


def test_weights_take_no_memory_beside_the_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
    write_gguf(small, seed=3)
    write_gguf(large, seed=3, width=1024, inner=4096, layers=2)
    size = large.stat().st_size
    assert size > 32 << 20
    for path in (small, large):
        started(path)
    before, after = started(small), started(large)
    assert after["kept"]
    assert after["RssAnon"] - before["RssAnon"] < size / 4
    assert after["VmHWM"] - before["VmHWM"] < size * 1.25
