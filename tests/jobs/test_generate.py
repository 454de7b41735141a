"""The job of writing on: the tokens of transformers, one program, states that are kept, streams, files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from jobs.small_models import TEMPLATE, byte_tokenizer, gpt2_graph, small_gpt2  # noqa: E402

from assay.errors import AssayError, BadArgument, BadFeed, ImportFailed, RunStopped, VerifyFailed  # noqa: E402
from assay.ir.dtypes import Array  # noqa: E402
from assay.jobs.generate import Sampling, generate_job  # noqa: E402
from assay.jobs.job import JobGraph, read_job, read_text  # noqa: E402
from assay.jobs.models import JobModel, ModelState, StateCache  # noqa: E402
from assay.jobs.search import search_job  # noqa: E402
from assay.jobs.tokenizers import Tokenizer  # noqa: E402
from assay.runtime.device_tensors import DeviceTensor  # noqa: E402
from assay.runtime.options import SessionOptions  # noqa: E402
from assay.runtime.targets import default_target, probe_target  # noqa: E402
from assay.targets.budget import Budget  # noqa: E402

PROMPT = "The quick brown fox"


class World:
    """A model, its tokenizer, and what transformers makes of the same."""

    def __init__(self) -> None:
        backend = byte_tokenizer()
        self.tokenizer = Tokenizer(backend, (), TEMPLATE)
        self.theirs = small_gpt2(backend.get_vocab_size())
        self.graph = gpt2_graph(self.theirs)

    def model(self, target: str = "", **more: Any) -> JobModel:
        return JobModel(self.graph, "sha256:model", SessionOptions(target=target or default_target()), **more)

    def job(self, sampling: Sampling | None = None, **more: Any) -> JobGraph:
        return generate_job("sha256:model", self.tokenizer.digest, sampling, **more)

    def given(self, model: JobModel, prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
        links = {"decoder": model, "tokenizer": self.tokenizer}
        return {**links, "prompt": prompt, "stop_tokens": [], "stop_texts": np.array([], object), **more}

    def expected(self, prompt: str, count: int, **more: Any) -> list[int]:
        tokens = torch.tensor([self.tokenizer.encode(prompt)])
        mask = torch.ones_like(tokens)
        settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, **more}
        found = self.theirs.generate(tokens, attention_mask=mask, max_new_tokens=count, **settings)
        return found[0, tokens.shape[1] :].tolist()


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module")
def model(world: World) -> JobModel:
    return world.model()


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_the_best_tokens_are_those_of_transformers(world: World, target: str) -> None:
    job, model = world.job(Sampling(most=200)), world.model(target)
    found = job.run(world.given(model))
    assert found["tokens"].tolist() == world.expected(PROMPT, 200)
    assert found["text"].item() == world.tokenizer.decode(found["tokens"])


@pytest.mark.parametrize("penalty", [1.3, 2.0])
def test_penalties_lead_to_the_tokens_of_transformers(world: World, model: JobModel, penalty: float) -> None:
    found = world.job(Sampling(most=60, repetition_penalty=penalty)).run(world.given(model))
    assert found["tokens"].tolist() == world.expected(PROMPT, 60, repetition_penalty=penalty)
    assert found["tokens"].tolist() != world.expected(PROMPT, 60)


def test_settings_are_those_of_the_job_unless_a_run_has_others(world: World, model: JobModel) -> None:
    job = world.job(Sampling(most=5))
    assert len(job.run(world.given(model))["tokens"]) == 5
    assert len(job.run(world.given(model, most=9))["tokens"]) == 9
    with pytest.raises(BadFeed, match="'moist'"):
        job.run(world.given(model, moist=9))
    with pytest.raises(BadFeed, match="temperature"):
        job.run(world.given(model, temperature="hot"))


def test_draws_are_reproduced_by_their_seed(world: World, model: JobModel) -> None:
    job = world.job(Sampling(most=40, temperature=1.0, top_p=0.95))
    runs = [job.run(world.given(model, seed=seed))["tokens"].tolist() for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_prompt_is_taken_in_one_go_and_all_steps_run_one_program(world: World, monkeypatch: Any) -> None:
    model = world.model("cpu")
    shapes: list[tuple[int, ...]] = []
    programs: set[int] = set()
    run = model.session.run

    def noted(feeds: Mapping[str, Array], **more: Any) -> Any:
        shapes.append((*feeds["tokens"].shape, feeds["layers.0.key"].shape[2]))
        found = run(feeds, **more)
        programs.add(id(model.session._latest))
        return found

    monkeypatch.setattr(model.session, "run", noted)

    def compiles(*args: Any, **more: Any) -> None:
        raise AssertionError("a program was compiled while the job ran")

    monkeypatch.setattr("assay.runtime.pipeline.compiled", compiles)
    world.job(Sampling(most=30)).run(world.given(model))
    length = len(world.tokenizer.encode(PROMPT))
    assert shapes == [(1, length, 0)] + [(1, 1, length + at) for at in range(29)]
    assert programs == {id(model.session._model.general.program)}


@pytest.mark.parametrize("width", [2, 5])
@pytest.mark.parametrize(("length_penalty", "early_stopping"), [(1.0, False), (0.5, True), (2.0, False)])
def test_beams_are_those_of_transformers(
    world: World, model: JobModel, width: int, length_penalty: float, early_stopping: bool
) -> None:
    stop = world.expected(PROMPT, 30)[12]
    settings: dict[str, Any] = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    job = search_job("sha256:model", world.tokenizer.digest, width, most=24, repetition_penalty=1.2, **settings)
    assert read_text(job.text).text == job.text
    given = {name: value for name, value in world.given(model, stop_tokens=[stop]).items() if name != "stop_texts"}
    found = job.run(given)
    expected = world.expected(
        PROMPT, 24, num_beams=width, eos_token_id=stop, repetition_penalty=1.2, pad_token_id=stop, **settings
    )
    tokens = found["tokens"].tolist()
    assert tokens == expected[: len(tokens)]
    assert set(expected[len(tokens) :]) <= {stop}
    assert tokens != world.expected(PROMPT, len(tokens))


def test_states_stay_on_the_device_that_made_them(world: World) -> None:
    if not probe_target("vulkan").present:
        pytest.skip("there is no device with Vulkan")
    model = world.model("vulkan")
    moved: list[int] = []

    def note(count: int) -> None:
        taken = model.session.transfers
        moved.append(-1 if taken is None else taken.bytes)

    found = world.job(Sampling(most=12)).run(world.given(model, progress=note))
    assert found["tokens"].tolist() == world.expected(PROMPT, 12)
    scores = 4 * world.tokenizer.vocabulary
    assert all(scores <= each < scores + 4096 for each in moved), "tokens go there, scores come back, and no cache does"
    longer = PROMPT + found["text"].item()
    expected = world.job(Sampling(most=4)).run(world.given(world.model(), longer))["tokens"].tolist()
    assert world.job(Sampling(most=4)).run(world.given(model, longer))["tokens"].tolist() == expected
    kept = list(model.cache._states.values())[-1]
    assert all(isinstance(value, DeviceTensor) for value in kept.values.values())
    key = kept.values["layers.0.key"]
    assert key.shape == np.asarray(key).shape
    with pytest.raises(BadFeed, match="dims"):
        model.session.run(
            {"tokens": np.zeros((2, 1), np.int64), **kept.values, "layers.0.key": np.zeros(3, np.float32)}
        )
    with pytest.raises(BadFeed, match="batch"):
        model.session.run({"tokens": np.zeros((2, 1), np.int64), **kept.values})


# --- stops and streams


def test_a_text_ends_at_a_token(world: World, model: JobModel) -> None:
    everything = world.expected(PROMPT, 30)
    stop = everything[12]
    at = everything.index(stop)
    found = world.job(Sampling(most=30)).run(world.given(model, stop_tokens=[stop]))
    assert found["tokens"].tolist() == everything[: at + 1]
    assert found["text"].item() == world.tokenizer.decode(everything[:at])


def test_a_text_ends_before_a_stretch_of_text(world: World, model: JobModel) -> None:
    whole = world.tokenizer.decode(world.expected(PROMPT, 40))
    stop = whole[11:15]
    pieces: list[str] = []
    given = world.given(model, stop_texts=np.array(["never", stop], object), pieces=pieces.append)
    found = world.job(Sampling(most=40)).run(given)
    assert found["text"].item() == "".join(pieces) == whole[: whole.index(stop)]
    assert len(found["tokens"]) < 40


def test_pieces_and_progress_come_while_it_runs(world: World, model: JobModel) -> None:
    heard: list[tuple[str, Any]] = []
    given = world.given(
        model, pieces=lambda text: heard.append(("text", text)), progress=lambda count: heard.append(("count", count))
    )
    found = world.job(Sampling(most=12)).run(given)
    assert [value for kind, value in heard if kind == "count"] == list(range(1, 13))
    assert "".join(value for kind, value in heard if kind == "text") == found["text"].item()
    assert [kind for kind, _ in heard[:4]] == ["text", "count", "text", "count"]


def test_a_run_is_cancelled_and_the_model_goes_on(world: World, model: JobModel) -> None:
    budget, counts = Budget(), []

    def enough(count: int) -> None:
        counts.append(count)
        if count == 7:
            budget.cancel()

    job = world.job(Sampling(most=1000))
    with pytest.raises(RunStopped, match="cancelled"):
        job.run(world.given(model, progress=enough), budget=budget)
    assert counts[-1] == 7
    budget.reset()
    assert len(job.run(world.given(model, most=3), budget=budget)["tokens"]) == 3


def test_a_run_has_a_time_limit(world: World, model: JobModel) -> None:
    started = time.monotonic()
    with pytest.raises(RunStopped, match="longer"):
        world.job(Sampling(most=100_000)).run(world.given(model), budget=Budget(seconds=0.5))
    assert time.monotonic() - started < 5


# --- observation


def test_every_value_can_be_watched_by_its_path(world: World, model: JobModel) -> None:
    seen: dict[str, list[Any]] = {}
    job = world.job(Sampling(most=4))
    assert {"logits", "scores", "token", "piece", "prompt_tokens"} <= set(job.paths)

    def note(path: str, value: Any) -> None:
        seen.setdefault(path, []).append(np.array(value))

    paths = ["logits", "token", "prompt_tokens", "decoder/hidden"]
    found = job.run(world.given(model), watched=dict.fromkeys(paths, note))
    assert [len(seen[each]) for each in paths] == [4, 4, 1, 4]
    assert [int(each[0]) for each in seen["token"]] == found["tokens"].tolist()
    prompt = world.tokenizer.encode(PROMPT)
    with torch.no_grad():
        expected = world.theirs(torch.tensor([prompt]), output_hidden_states=True)
    np.testing.assert_allclose(seen["logits"][0], expected.logits[:, -1].numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        seen["decoder/hidden"][0], expected.hidden_states[-1][:, -1].numpy(), rtol=1e-4, atol=1e-4
    )
    for path in ("nothing", "decoder/nothing", "tokenizer/x"):
        with pytest.raises(BadArgument):
            job.run(world.given(model), watched={path: note})


# --- states of texts that begin alike


def test_a_longer_text_starts_from_the_state_of_a_shorter_one(world: World) -> None:
    model, job = world.model(), world.job(Sampling(most=10))
    steps: list[int] = []
    job.run(world.given(model))
    begins = world.tokenizer.decode(job.run(world.given(model))["tokens"])
    longer = PROMPT + begins + " and then"
    whole = world.job(Sampling(most=10)).run(world.given(world.model(), longer))["tokens"]

    def note(path: str, value: Array) -> None:
        steps.append(value.shape[1])

    kept = model.session.run

    def counted(feeds: Mapping[str, Array], **more: Any) -> Any:
        steps.append(feeds["tokens"].shape[1])
        return kept(feeds, **more)

    model.session.run = counted  # pyright: ignore[reportAttributeAccessIssue]
    assert job.run(world.given(model, longer))["tokens"].tolist() == whole.tolist()
    assert steps[0] < len(world.tokenizer.encode(longer)) - 10
    steps.clear()
    other = PROMPT + " rests"
    expected = world.expected(other, 10)
    assert job.run(world.given(model, other))["tokens"].tolist() == expected, "a state is cut back to what texts share"
    assert steps[0] < len(world.tokenizer.encode(other))


def test_the_cache_keeps_to_its_limit() -> None:
    def state(*tokens: int) -> ModelState:
        return ModelState({"key": np.zeros(100, np.uint8)}, tokens)

    cache = StateCache(limit=250)
    cache.put(state(1, 2))
    cache.put(state(1, 2, 3))
    assert cache.nbytes == 100, "a state that continues another takes its place"
    cache.put(state(5, 6))
    found = cache.longest([1, 2, 3, 4])
    assert found is not None
    assert found[1] == 3
    cache.put(state(7, 8))
    assert cache.nbytes == 200
    assert cache.longest([5, 6]) is None, "what was used longest ago is gone"
    assert cache.longest([1, 2, 3]) is not None
    StateCache(limit=10).put(state(1))


def test_a_model_with_a_state_of_fixed_size_is_not_cut_back(world: World) -> None:
    model = world.model()
    model.states = {name: replace(kind, shape=(1, 4, 8)) for name, kind in model.states.items()}
    assert not model.is_sliced
    model.cache.put(ModelState({name: np.zeros((1, 4, 8)) for name in model.states}, (1, 2, 3)))
    assert model.recall([1, 2, 3, 4]).tokens == (1, 2, 3)
    assert model.recall([1, 2, 9]).tokens == ()


# --- chat


def test_a_conversation_goes_through_the_template(world: World, model: JobModel) -> None:
    job = world.job(Sampling(most=8), chat=True)
    given = world.given(model, roles=["system", "user"], contents=["Be brief.", "hi"])
    del given["prompt"]
    text: list[Any] = []
    found = job.run(given, watched={"conversation": lambda path, value: text.append(value.item())})
    assert text == ["<|system|>Be brief.<|end|>\n<|user|>hi<|end|>\n<|assistant|>"]
    tokens = torch.tensor([world.tokenizer.encode(text[0], special=False)])
    settings: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = world.theirs.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, **settings)
    assert found["tokens"].tolist() == expected[0, tokens.shape[1] :].tolist()


# --- files


def test_a_job_is_a_text_and_a_file(world: World, model: JobModel, tmp_path: Path) -> None:
    job = world.job(Sampling(most=6, temperature=0.7, seed=3))
    job.save(tmp_path / "a.job")
    back = read_job(tmp_path / "a.job")
    assert back.text == job.text
    assert back.digest == job.digest
    assert back.links["decoder"].content == "sha256:model"
    assert float(back.settings["temperature"]) == pytest.approx(0.7)
    assert back.run(world.given(model))["tokens"].tolist() == job.run(world.given(model))["tokens"].tolist()
    assert len((tmp_path / "a.job").read_bytes()) < 20_000


def test_a_job_runs_with_the_things_that_it_names_alone(world: World, model: JobModel) -> None:
    job = world.job()
    other = Tokenizer(byte_tokenizer(300))
    with pytest.raises(BadFeed, match="another tokenizer"):
        job.run(world.given(model, tokenizer=other))
    missing = world.given(model)
    del missing["decoder"]
    with pytest.raises(BadFeed, match="'decoder' is missing"):
        job.run(missing)
    with pytest.raises(BadArgument, match="no token"):
        job.run(world.given(model, ""))


WRONG = {
    "no job": ('graph "g" core (%0 "x": f32[]) { return %0 "y" }', VerifyFailed),
    "no graph": ("hello", ImportFailed),
    "an op of nobody": (
        'graph "g" job (%0 "x": f32[]) { %1: f32[] = job.fly(%0) from "a" return %1 "y" }',
        VerifyFailed,
    ),
    "an op of a target": (
        'graph "g" job (%0 "x": f32[]) { %1: f32[] = cpu.pack_panels(%0) from "a" return %1 "y" }',
        VerifyFailed,
    ),
    "code of others": (
        'graph "g" job (%0 "x": f32[]) { %1: f32[] = opaque(%0) {target = "aten.abs.default", args = [], kwargs = [],'
        ' kinds = ["f32[]"], reason = ""} from "a" return %1 "y" }',
        VerifyFailed,
    ),
    "a link of another kind": (
        'graph "g" job (%0 "t": tokenizer, %1 "n": i64[3]) { %2: state, %3: i64[1, ?] = job.recall(%0, %1) from "a"'
        ' return %3 "y" }',
        VerifyFailed,
    ),
    "a type that is not so": (
        'graph "g" job (%0 "t": tokenizer, %1 "n": i64[3]) { %2: model = job.decode(%0, %1) from "a" return %2 "y" }',
        VerifyFailed,
    ),
    "an attribute of the wrong kind": (
        'graph "g" job (%0 "x": f32[2]) { %1: f32[2] = softmax(%0) {axis = "last"} from "a" return %1 "y" }',
        VerifyFailed,
    ),
    "too large": (
        f'graph "g" job (%0 "x": f32[]) {{ const %1: f32[{1 << 28}] = zlib"eJxjAAAAAQAB" return %1 "y" }}',
        ImportFailed,
    ),
}


@pytest.mark.parametrize(("text", "error"), WRONG.values(), ids=WRONG.keys())
def test_what_is_no_job_is_refused(text: str, error: type[AssayError]) -> None:
    with pytest.raises(error):
        read_text(text)


def test_damaged_jobs_give_typed_errors(world: World, model: JobModel, tmp_path: Path) -> None:
    """Whatever is changed in a file, reading it and running it gives results or an error that is ours."""
    world.job(Sampling(most=2)).save(tmp_path / "a.job")
    data = (tmp_path / "a.job").read_bytes()
    words = data.split()
    rng = np.random.default_rng(5)
    refused = 0
    for at in range(400):
        kind = at % 4
        changed = bytearray(data)
        if kind == 0:
            for place in rng.integers(0, len(data), rng.integers(1, 4)):
                changed[place] = rng.integers(32, 127)
        elif kind == 1:
            del changed[int(rng.integers(0, len(data))) :]
        elif kind == 2:
            changed = bytearray(data.replace(words[rng.integers(3, len(words))], words[rng.integers(3, len(words))], 1))
        else:
            lines = data.split(b"\n")
            first, second = rng.integers(1, len(lines) - 1, 2)
            lines[first], lines[second] = lines[second], lines[first]
            changed = bytearray(b"\n".join(lines))
        (tmp_path / "b.job").write_bytes(bytes(changed))
        try:
            job = read_job(tmp_path / "b.job")
            given = {name: value for name, value in world.given(model).items() if name in job.graph.input_names}
            job.run(given, budget=Budget(seconds=2.0, memory=1 << 26))
        except AssayError:
            refused += 1
    assert refused > 300
