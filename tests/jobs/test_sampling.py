"""Sampling ops beside transformers' own logits processors, draws beside the probabilities, beams beside its search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.ir.dtypes import Array
from assay.jobs.definitions import beams as beam_ops
from assay.jobs.definitions import sampling, stopping
from assay.ops.registry import OpDef, evaluate

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.generation import logits_process as theirs  # noqa: E402

VOCABULARY, ROWS = 997, 6


def ours(definition: OpDef, *inputs: Any) -> Array:
    """The result of an op on scores, in the dtype of the scores."""
    dtype = inputs[0].dtype if definition is not sampling.draw else np.int64
    return evaluate(definition, inputs, {}, [dtype])[0]


def scores(seed: int, spread: float = 3.0) -> Array:
    return (np.random.default_rng(seed).standard_normal((ROWS, VOCABULARY)) * spread).astype(np.float32)


def tokens(seed: int, count: int = 40) -> Array:
    return np.random.default_rng(seed).integers(0, VOCABULARY, (ROWS, count))


def processed(processor: Any, given: Array, seen: Array) -> Array:
    return processor(torch.from_numpy(seen), torch.from_numpy(given.copy())).numpy()


def odds(found: Array) -> Array:
    return torch.softmax(torch.from_numpy(found).double(), -1).numpy()


NUMBER = np.float32
CASES: dict[str, tuple[OpDef, Any, tuple[Any, ...]]] = {
    **{f"temperature {t}": (sampling.temper, theirs.TemperatureLogitsWarper(t), (NUMBER(t),)) for t in (0.3, 0.7, 2.5)},
    **{
        f"top-k {k}": (sampling.top_k, theirs.TopKLogitsWarper(k), (np.int64(k),)) for k in (1, 5, 50, VOCABULARY, 5000)
    },
    **{f"top-p {p}": (sampling.top_p, theirs.TopPLogitsWarper(p), (NUMBER(p),)) for p in (0.0, 0.1, 0.5, 0.9, 0.99)},
    **{f"min-p {p}": (sampling.min_p, theirs.MinPLogitsWarper(p), (NUMBER(p),)) for p in (0.02, 0.1, 0.6, 1.0)},
}


@pytest.mark.parametrize(("definition", "processor", "settings"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("seed", range(5))
def test_what_is_kept_and_its_odds_are_those_of_transformers(
    definition: OpDef, processor: Any, settings: tuple[Any, ...], seed: int
) -> None:
    given = scores(seed)
    mine, other = ours(definition, given, *settings), processed(processor, given, tokens(seed))
    np.testing.assert_array_equal(np.isneginf(mine), np.isneginf(other))
    np.testing.assert_allclose(odds(mine), odds(other), rtol=1e-6, atol=0)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_repetition_is_penalised_as_in_transformers(penalty: float, seed: int) -> None:
    given, seen = scores(seed), tokens(seed)
    other = processed(theirs.RepetitionPenaltyLogitsProcessor(penalty), given, seen)
    np.testing.assert_allclose(ours(sampling.repetition_penalty, given, seen, NUMBER(penalty)), other, rtol=3e-7)


@pytest.mark.parametrize(("presence", "frequency"), [(0.5, 0.0), (0.0, 0.3), (-1.0, 0.7)])
def test_presence_and_frequency_are_penalised_as_they_are_defined(presence: float, frequency: float) -> None:
    given, seen = scores(1), tokens(1, 3000)
    counts = torch.nn.functional.one_hot(torch.from_numpy(seen), VOCABULARY).sum(1).double()
    other = torch.from_numpy(given).double() - presence * (counts > 0) - frequency * counts
    mine = ours(sampling.presence_penalty, given, seen, NUMBER(presence), NUMBER(frequency))
    np.testing.assert_allclose(mine, other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_whole_chain_is_that_of_transformers(seed: int) -> None:
    given, seen = scores(seed), tokens(seed)
    other = given
    for each in (
        theirs.RepetitionPenaltyLogitsProcessor(1.2),
        theirs.TemperatureLogitsWarper(0.8),
        theirs.TopKLogitsWarper(60),
        theirs.TopPLogitsWarper(0.9),
        theirs.MinPLogitsWarper(0.05),
    ):
        other = processed(each, other, seen)
    mine = ours(sampling.repetition_penalty, given, seen, NUMBER(1.2))
    mine = ours(sampling.top_k, ours(sampling.temper, mine, NUMBER(0.8)), np.int64(60))
    mine = ours(sampling.min_p, ours(sampling.top_p, mine, NUMBER(0.9)), NUMBER(0.05))
    np.testing.assert_array_equal(np.isneginf(mine), np.isneginf(other))
    np.testing.assert_allclose(odds(mine), odds(other), rtol=1e-6, atol=0)


def test_neutral_settings_change_nothing() -> None:
    given, seen = scores(3), tokens(3)
    for definition, *settings in (
        (sampling.repetition_penalty, seen, NUMBER(1)),
        (sampling.presence_penalty, seen, NUMBER(0), NUMBER(0)),
        (sampling.temper, NUMBER(1)),
        (sampling.top_k, np.int64(0)),
        (sampling.top_p, NUMBER(1)),
        (sampling.min_p, NUMBER(0)),
    ):
        np.testing.assert_array_equal(ours(definition, given, *settings), given)


def test_without_temperature_the_best_token_is_drawn_whatever_the_seed() -> None:
    given = scores(4)
    given[0, [3, 700]] = 99  # of equals the first, as torch has it
    cold = ours(sampling.temper, given, NUMBER(0))
    for seed in range(20):
        drawn = ours(sampling.draw, cold, np.int64(seed), np.int64(seed))
        np.testing.assert_array_equal(drawn, torch.from_numpy(given).argmax(-1).numpy())


def test_draws_follow_the_odds() -> None:
    given = np.array([[0.0, 1.0, -np.inf, 2.0, -1.0, 0.5]], np.float32)
    expected, count = odds(given)[0], 20_000
    drawn = [int(ours(sampling.draw, given, np.int64(11), np.int64(at))[0]) for at in range(count)]
    found = np.bincount(drawn, minlength=6)
    assert found[2] == 0
    likely = expected > 0
    statistic = ((found - count * expected)[likely] ** 2 / (count * expected[likely])).sum()
    assert statistic < 20.5, "less than one in a thousand true samples is so far off (chi², 4 degrees of freedom)"


def test_scores_that_are_no_numbers_are_an_error() -> None:
    for given in (np.full((1, 5), np.nan, np.float32), np.full((1, 5), -np.inf, np.float32)):
        with pytest.raises(ValueError, match="no token is left"):
            sampling.draw.reference(given, np.array(1), np.array(0))


def test_draws_depend_on_seed_and_position_alone() -> None:
    given = scores(5, 0.1)
    first = [ours(sampling.draw, given, np.int64(7), np.int64(at)).tolist() for at in range(50)]
    again = [ours(sampling.draw, given, np.int64(7), np.int64(at)).tolist() for at in reversed(range(50))]
    other = [ours(sampling.draw, given, np.int64(8), np.int64(at)).tolist() for at in range(50)]
    assert first == again[::-1]
    assert first != other
    assert len({tuple(row) for row in first}) > 40
    assert all(len(set(row)) > 1 for row in first), "rows are drawn for themselves"


# --- beams


def searched(logits_of: Any, width: int, steps: int, stops: list[int], **attrs: Any) -> tuple[list[int], float]:
    """The best text that beam search finds, and its score. `logits_of` gives scores for lists of tokens."""
    running, best = np.zeros((width, 0), np.int64), np.zeros((width, 0), np.int64)
    totals = np.array([0.0] + [-1e9] * (width - 1), np.float32)
    best_totals, done, improvable = np.full(width, -1e9, np.float32), np.zeros(width, bool), np.array(True)
    for step in range(steps):
        log_odds = torch.log_softmax(torch.from_numpy(logits_of(running)), -1).numpy()
        last = np.array(step + 1 == steps)
        running, origins, totals, best, best_totals, done, improvable, go = beam_ops.beams.reference(
            log_odds, running, totals, best, best_totals, done, improvable, np.array(stops), last, **attrs
        )
        assert origins.max() < width
        if not go:
            break
    return [int(token) for token in best[0] if token >= 0], float(best_totals[0])


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.4,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("width", [2, 4, 7])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0])
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("stops", [[5], [5, 9, 11, 20]], ids=["one stop", "four stops"])
def test_beams_find_what_transformers_finds(
    tiny: Any, width: int, length_penalty: float, early_stopping: bool, stops: list[int]
) -> None:
    for start in range(3):
        prompt = [1 + start, 8, 3]

        def logits_of(running: Array, prompt: list[int] = prompt) -> Array:
            rows = torch.tensor([prompt + row.tolist() for row in running])
            with torch.no_grad():
                return tiny(rows).logits[:, -1].numpy()

        expected = tiny.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, 3, dtype=torch.long), num_beams=width,
            max_new_tokens=12, do_sample=False, eos_token_id=stops, pad_token_id=0, length_penalty=length_penalty,
            early_stopping=early_stopping, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        settings = {"length_penalty": length_penalty, "early_stopping": early_stopping}
        found, score = searched(logits_of, width, 12, stops, **settings)
        theirs_found = expected.sequences[0, len(prompt) :].tolist()
        while theirs_found and theirs_found[-1] == 0 and len(theirs_found) > len(found):
            theirs_found.pop()  # padding
        assert found == theirs_found
        assert score == pytest.approx(float(expected.sequences_scores[0]), rel=1e-4)


# --- stopping


def test_a_text_ends_before_the_first_of_the_stops_however_it_comes_in_pieces() -> None:
    stops = np.array(["<end>", "\n\nQ:", "ß!"], object)
    rng = np.random.default_rng(0)
    for text in (
        "no stop at all <en",
        "one<end>two",
        "a\n\nQ: b<end>",
        "<<end>>",
        "<end",
        "\n\n\nQ:x",
        "straß!e",
        "aß",
    ):
        at = min([text.find(each) for each in stops if each in text], default=len(text))
        for _ in range(20):
            given, held, rest = "", np.array("", object), text
            stopped = False
            while rest and not stopped:
                size = int(rng.integers(0, 4))
                out, held, ended = stopping.until.reference(held, np.array(rest[:size], object), stops)
                given, rest, stopped = given + out.item(), rest[size:], bool(ended)
                assert given == text[: len(given)], "what is given out never has to be taken back"
            assert given + held.item() == text[:at]
            assert stopped == (at < len(text))


def test_tokens_end_a_text_when_all_of_them_do() -> None:
    ends = stopping.ends.reference
    assert ends(np.array([3]), np.array([1, 3]))
    assert not ends(np.array([3]), np.array([], np.int64))
    assert not ends(np.array([3, 2]), np.array([3]))
