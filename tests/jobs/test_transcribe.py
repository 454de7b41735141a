"""Speech to text beside transformers: rules, windows, tokens; commands and their files."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from jobs.small_models import save_speech_writer  # noqa: E402
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor  # noqa: E402

import assay  # noqa: E402
from assay.errors import AssayError, BadArgument, FileMissing, RunStopped  # noqa: E402
from assay.ir.dtypes import Array  # noqa: E402
from assay.jobs.definitions.sampling import all_log_odds, log_odds  # noqa: E402
from assay.jobs.definitions.speech import compression, continued, phrases, speech_rules  # noqa: E402
from assay.jobs.job import read_job, read_text  # noqa: E402
from assay.jobs.speech import Phrase, SpeechWriter  # noqa: E402
from assay.jobs.speech_tokens import openai_tokenizer, speech_tokens  # noqa: E402
from assay.jobs.subtitles import FORMS, clock  # noqa: E402
from assay.jobs.transcribe import Hearing  # noqa: E402
from assay.ops.registry import evaluate  # noqa: E402
from assay.targets.budget import Budget  # noqa: E402

END, TIMES, SIZE = 20, 30, 80
GREEDY = Hearing(temperatures=(0.0,), silence=1.0, most=40)


def noise(seconds: float, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(int(16_000 * seconds)) * 0.1).astype(np.float32)


# --- rules


def test_rules_of_times_are_those_of_transformers() -> None:
    rng = np.random.default_rng(3)
    config = transformers.GenerationConfig(
        eos_token_id=END, bos_token_id=END, no_timestamps_token_id=TIMES - 1, max_initial_timestamp_index=5
    )
    theirs = WhisperTimeStampLogitsProcessor(config, begin_index=1)
    empty = np.zeros(0, np.int64)
    for _ in range(400):
        count = rng.integers(0, 6)
        made = np.where(rng.random(count) < 0.5, rng.integers(TIMES, SIZE, count), rng.integers(0, END, count))
        scores = (rng.standard_normal((1, SIZE)) * 3).astype(np.float32)
        given = torch.tensor([[END + 1, *made]])
        expected = theirs(given, torch.from_numpy(scores).clone()).numpy()
        attrs = {"end": END, "times": TIMES, "latest": 5}
        (found,) = evaluate(speech_rules, [scores, made[None].astype(np.int64), empty, empty], attrs, [np.float32])
        np.testing.assert_array_equal(found, expected)


def test_what_is_never_said_is_ruled_out() -> None:
    scores = np.zeros((2, SIZE), np.float32)
    never, first = np.array([3, 4]), np.array([5, END])
    attrs = {"end": END, "times": TIMES, "latest": 50}
    made = np.array([[TIMES + 2, 7, 8], [TIMES + 3, 7, 9]])
    (found,) = evaluate(speech_rules, [scores, made, never, first], attrs, [np.float32])
    assert np.isinf(found[:, [3, 4, TIMES - 1]]).all()
    with pytest.raises(ValueError, match="no first time"):
        evaluate(speech_rules, [scores, made, never, first], {**attrs, "times": END}, [np.float32])


def test_figures_of_a_text() -> None:
    scores = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    tokens = np.array([1, 7, 49])
    expected = torch.log_softmax(torch.from_numpy(scores), -1).numpy()[np.arange(3), tokens]
    (found,) = evaluate(log_odds, [scores, tokens], {}, [np.float32])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    (found,) = evaluate(all_log_odds, [scores], {}, [np.float32])
    np.testing.assert_allclose(found, torch.log_softmax(torch.from_numpy(scores), -1).numpy(), atol=1e-5)
    (once,) = evaluate(compression, [np.array("one text", object)], {}, [np.float32])
    (often,) = evaluate(compression, [np.array("one text " * 30, object)], {}, [np.float32])
    assert once < 1 < 10 < often
    earlier, tokens = np.arange(10), np.array([77])
    for most, said in ((3, [99, 7, 8, 9, 77]), (0, [77])):
        (found,) = evaluate(continued, [earlier, tokens], {"mark": 99, "most": most}, [np.int64])
        assert found.tolist() == said


class _Letters:
    """Decodes tokens as letters."""

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(65 + token) for token in tokens)


@pytest.mark.parametrize(
    ("tokens", "said", "ahead"),
    [
        ([30, 1, 2, 40, 40, 3, 45], [(0, 0.2, "BC"), (0.2, 0.3, "D")], 480_000),
        ([30, 1, 2, 40, 40, 3, 45, 45], [(0, 0.2, "BC"), (0.2, 0.3, "D")], 15 * 320),
        ([30, 1, 40, 41, 2], [(0, 0.2, "B")], 10 * 320),
        ([30, 1, 2], [(0, 30, "BC")], 480_000),
        ([30, 1, 40], [(0, 0.2, "B")], 480_000),
        ([30, 30, 31, 1, 40, 40], [(0.02, 0.2, "B")], 10 * 320),
        ([], [], 480_000),
    ],
)
def test_tokens_become_phrases(tokens: list[int], said: list[tuple[float, float, str]], ahead: int) -> None:
    """As OpenAI's code cuts them: a pair of times ends a phrase; what has no second time is heard again."""
    given = [_Letters(), np.array(tokens, np.int64), np.array(16_000), np.array(480_000), np.array(False), np.zeros(4)]
    spans, texts, flat, counts, figures, found = phrases.reference(*given, end=END, times=TIMES)
    expected = np.array([(1 + start, 1 + end) for start, end, _ in said]).reshape(-1, 2)
    np.testing.assert_allclose(spans, expected)
    assert texts.tolist() == [text for *_, text in said]
    assert len(flat) == counts.sum()
    assert figures.shape == (len(said), 4)
    assert int(found) == ahead
    given[4] = np.array(True)
    assert len(phrases.reference(*given, end=END, times=TIMES)[1]) == 0


def test_the_tokens_of_english_models() -> None:
    """Numbers that OpenAI publishes."""
    tokenizer = openai_tokenizer(51_864)
    found = speech_tokens(tokenizer, 51_864)
    assert (found.end, found.start, found.no_times, found.times) == (50256, 50257, 50362, 50363)
    assert (found.earlier, found.silence, found.languages) == (50360, 50361, {})
    assert found.not_first == (220, 50256)
    text = "Größe: 12 naïve foxes, aren't they?\n  🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("Hello, world") == [15496, 11, 995]
    with pytest.raises(AssayError, match="no Whisper model has"):
        openai_tokenizer(51_800)
    with pytest.raises(BadArgument, match="no token"):
        speech_tokens(type(tokenizer)(__import__("tokenizers").Tokenizer(__import__("tokenizers").models.BPE())), 10)


# --- a small model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whisper")
    save_speech_writer(path)
    return path


@pytest.fixture(scope="module")
def writer(folder: Path) -> SpeechWriter:
    return assay.pipeline("transcribe", folder, target="cpu")


class Network:
    """transformers' network under transformers' rules, step by step."""

    def __init__(self, folder: Path, writer: SpeechWriter, sound: Array, prompt: list[int]) -> None:
        self.told, self.prompt = writer.model.tokens, prompt
        self.model = transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
        extractor = transformers.WhisperFeatureExtractor(feature_size=self.model.config.num_mel_bins)
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_features"]
        end, silent = self.told.end, self.told.no_times
        config = transformers.GenerationConfig(
            eos_token_id=end, bos_token_id=end, no_timestamps_token_id=silent, max_initial_timestamp_index=50
        )
        self.rules = WhisperTimeStampLogitsProcessor(config, begin_index=len(prompt))
        with torch.no_grad():
            self.heard = self.model.model.encoder(features)

    def scores(self, tokens: list[int]) -> Any:
        given = torch.tensor([[*self.prompt, *tokens]])
        with torch.no_grad():
            scores = self.model(encoder_outputs=self.heard, decoder_input_ids=given).logits[:, -1].clone()
        scores[:, list(self.told.never)] = -torch.inf
        return self.rules(given, scores)[0]


def expected_tokens(folder: Path, writer: SpeechWriter, sound: Array, prompt: list[int], most: int) -> list[int]:
    """The tokens that are best, one by one."""
    network, tokens = Network(folder, writer, sound, prompt), list[int]()
    while len(tokens) < most and (best := int(network.scores(tokens).argmax())) != network.told.end:
        tokens.append(best)
    return tokens


def network_odds(folder: Path, writer: SpeechWriter, sound: Array, prompt: list[int], tokens: list[int]) -> list[float]:
    """The log probability of each token behind those before it."""
    network = Network(folder, writer, sound, prompt)
    return [float(torch.log_softmax(network.scores(tokens[:at]), -1)[each]) for at, each in enumerate(tokens)]


@pytest.mark.parametrize("seed", range(4))
def test_tokens_of_a_window_are_those_of_transformers(folder: Path, writer: SpeechWriter, seed: int) -> None:
    sound = noise(3 + seed, seed)
    seen: list[Array] = []
    found = writer(sound, GREEDY, watched={"made": lambda path, value: seen.append(value)})
    expected = expected_tokens(folder, writer, sound, [writer.model.tokens.start], GREEDY.most)
    assert seen[0].tolist() == expected
    assert found.sound_seconds == 3 + seed


@pytest.mark.parametrize("context", [False, True])
def test_a_long_sound_goes_on_window_by_window(writer: SpeechWriter, context: bool) -> None:
    hearing = replace(GREEDY, context=context)
    done: list[float] = []
    told: list[Phrase] = []
    found = writer(noise(70), hearing, phrases=told.append, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == 70
    assert len(done) >= 3
    assert tuple(told) == found.phrases
    starts = [each.start for each in found.phrases]
    assert starts == sorted(starts)
    assert all(0 <= each.start < each.end <= 70 for each in found.phrases)
    assert "".join(found.text.split()) == "".join("".join(each.text.split()) for each in found.phrases)
    assert writer(noise(70), hearing).phrases == found.phrases


def watched_run(writer: SpeechWriter, sound: Array, hearing: Hearing, **more: Any) -> dict[str, Any]:
    """What the job finds in the first window."""
    found: dict[str, Any] = {}

    def note(path: str, value: Any) -> None:
        found.setdefault(path, value)

    writer(sound, hearing, **more, watched=dict.fromkeys(("made", "log_odds_found", "temperature_found"), note))
    return found


def test_a_doubtful_text_is_drawn_anew_and_a_seed_repeats_it(writer: SpeechWriter) -> None:
    warm = Hearing(temperatures=(0.0, 0.4, 0.8), log_odds=0.0, silence=1.0, most=20)
    first = watched_run(writer, noise(5), warm)
    assert first["temperature_found"] == np.float32(0.8)
    np.testing.assert_array_equal(watched_run(writer, noise(5), warm)["made"], first["made"])
    other = watched_run(writer, noise(5), replace(warm, seed=1))
    assert other["made"].tolist() != first["made"].tolist()
    sure = watched_run(writer, noise(5), replace(warm, log_odds=-1e9, compression=1e9))
    assert sure["temperature_found"] == 0
    repeated = watched_run(writer, noise(5), replace(warm, log_odds=-1e9, compression=0.0))
    assert repeated["temperature_found"] == np.float32(0.8)


def test_silence_says_nothing(writer: SpeechWriter) -> None:
    found = writer(noise(40), Hearing(temperatures=(0.0,), log_odds=0.0, silence=0.0, most=20))
    assert found.phrases == ()
    assert found.text == ""
    assert writer(np.zeros(0, np.float32)).phrases == ()


@pytest.mark.parametrize("seed", range(3))
def test_the_text_that_beams_find_is_as_probable_as_transformers_has_it(
    folder: Path, writer: SpeechWriter, seed: int
) -> None:
    """Every row of the states belongs to its beam: else the sum of log probabilities would be another."""
    sound, short = noise(4, seed), replace(GREEDY, most=12)
    found = watched_run(writer, sound, short, beams=4)
    again = watched_run(writer, sound, short, beams=4)
    np.testing.assert_array_equal(again["made"], found["made"])
    made = found["made"].tolist()
    whole = made if len(made) == short.most else [*made, writer.model.tokens.end]
    odds = network_odds(folder, writer, sound, [writer.model.tokens.start], whole)
    assert found["log_odds_found"] == pytest.approx(sum(odds) / len(whole), abs=1e-4)


def test_a_job_can_be_saved_sent_and_stopped(writer: SpeechWriter, tmp_path: Path) -> None:
    job = writer.job(GREEDY, "", False, 3)
    job.save(tmp_path / "speech.job")
    again = read_job(tmp_path / "speech.job")
    assert again.digest == job.digest
    assert read_text(again.text).digest == job.digest
    links = {"encoder": writer.encoder, "decoder": writer.decoder, "tokenizer": writer.tokenizer}
    from assay.jobs.sound_files import SoundSamples

    given = {**links, "sound": SoundSamples(noise(3), 16_000)}
    assert again.run(given)["text"].item() == writer(noise(3), GREEDY, beams=3).text
    budget = Budget()
    with pytest.raises(RunStopped):
        writer(noise(70), GREEDY, progress=lambda seconds: budget.cancel(), budget=budget)


def test_damaged_jobs_give_typed_errors(writer: SpeechWriter) -> None:
    """Words and numbers of the text changed, by a seed: refused, or a job."""
    text = writer.job(GREEDY, "", False, 2).text
    rng = np.random.default_rng(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        mutated = list(text)
        for _ in range(rng.integers(1, 4)):
            mutated[rng.integers(len(mutated))] = "0123456789%{}()<>= abcdef"[rng.integers(25)]
        try:
            read_text("".join(mutated))
            outcomes["read"] += 1
        except AssayError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 50, outcomes


def test_languages_are_found_out_or_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model of many languages: the prompt is start, language and task."""
    monkeypatch.setattr("assay.jobs.speech_tokens._ENGLISH", 100)
    save_speech_writer(tmp_path, seed=4)
    writer = assay.pipeline("transcribe", tmp_path, target="cpu")
    told = writer.model.tokens
    assert set(told.languages) == {"en", "de"}
    sound = noise(4, 9)
    seen: list[Array] = []

    def note(path: str, value: Array) -> None:
        seen.append(value)

    for language, translate in (("de", False), ("en", True), ("", False)):
        seen.clear()
        found = writer(sound, GREEDY, language=language, translate=translate, watched={"made": note})
        spoken = told.languages[found.language]
        prompt = [told.start, spoken, told.translate if translate else told.transcribe]
        assert seen[0].tolist() == expected_tokens(tmp_path, writer, sound, prompt, GREEDY.most)
        assert found.language == (language or found.language)
    with pytest.raises(BadArgument, match="'fr'"):
        writer(sound, language="fr")


LANGUAGES = ("en", "zh", "de", "fr", "ja", "haw", "yue")


def test_the_language_is_the_one_that_transformers_detects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.jobs.speech_tokens._ENGLISH", 100)
    model = save_speech_writer(tmp_path, seed=11, languages=LANGUAGES)
    writer = assay.pipeline("transcribe", tmp_path, target="cpu")
    known = writer.model.tokens.languages
    assert set(known) == set(LANGUAGES)
    extractor = transformers.WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    config = transformers.GenerationConfig(
        decoder_start_token_id=writer.model.tokens.start, lang_to_id={f"<|{name}|>": at for name, at in known.items()}
    )
    short, detected = Hearing(temperatures=(0.0,), most=2), set[str]()
    for seed in range(8):
        sound = noise(1 + 4 * seed, seed) * (0.1 + seed)
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_features"]
        expected = int(model.detect_language(features, generation_config=config))
        found = writer(sound, short).language
        assert known[found] == expected
        detected.add(found)
    assert len(detected) > 1


def test_what_cannot_be_opened_is_said(writer: SpeechWriter, tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="no model"):
        assay.pipeline("transcribe", tmp_path / "nothing")
    with pytest.raises(BadArgument, match="'de'"):
        writer(noise(1), language="de")
    with pytest.raises(BadArgument, match="translate"):
        writer(noise(1), translate=True)
    with pytest.raises(FileMissing):
        writer(tmp_path / "nothing.wav")


# --- files and commands


def test_forms_of_subtitles() -> None:
    phrase = Phrase(3661.5, 3662.0456, "one --> two\nthree", (1,), -0.5, 1.0, 0.1, 0.0)
    assert clock(3661.5) == "01:01:01.500"
    assert FORMS["srt"].phrase(7, phrase) == "7\n01:01:01,500 --> 01:01:02,046\none -> two three\n\n"
    assert FORMS["vtt"].head + FORMS["vtt"].phrase(1, phrase) == (
        "WEBVTT\n\n01:01:01.500 --> 01:01:02.046\none -> two three\n\n"
    )
    assert json.loads(FORMS["json"].phrase(1, phrase))["start"] == 3661.5


class _Input:
    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def test_the_command_writes_compares_and_reads_stdin(
    folder: Path, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = (noise(2) * 32767).astype("<i2").tobytes()
    monkeypatch.setattr("sys.stdin", _Input(raw))
    result, out = tmp_path / "result.json", tmp_path / "said.vtt"
    options = ["--model", folder, "--no-fallback", "--raw", 16_000, "--json", result]
    code, printed, err = call("transcribe", "-", *options, "-f", "vtt", "-o", out, "--compare-with", "reference")
    assert code == 0, err
    assert "2.0 s of sound" in err
    data = json.loads(result.read_text())
    assert data["compared"]["same"]
    assert "reference: the same" in printed
    assert out.read_text().startswith("WEBVTT\n\n")
    assert out.read_text().count(" --> ") == len(data["phrases"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.wav"], "no file"),
        (["nothing.wav", "--target", "nonsense"], "nonsense"),
        (["nothing.wav", "--compare-with", "nonsense"], "nonsense"),
        (["nothing.wav", "--beams", "0"], "--beams"),
        (["nothing.wav", "--format", "pdf"], "--format"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, folder: Path, arguments: list[str], says: str) -> None:
    code, _, err = call("transcribe", *arguments, "--model", folder)
    assert code == 2
    assert says in err
