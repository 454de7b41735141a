"""Spectrograms beside those of transformers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from assay.ir.dtypes import Array, f32  # noqa: E402
from assay.ir.facts import Fact  # noqa: E402
from assay.ir.types import TensorType  # noqa: E402
from assay.jobs.definitions.sound import log_mel  # noqa: E402
from assay.ops.registry import evaluate  # noqa: E402
from assay.zoo.moonshine import clip_path, read_speech  # noqa: E402


def sounds() -> dict[str, Array]:
    rng = np.random.default_rng(1)
    return {
        "speech": read_speech(clip_path()),
        "noise": (rng.standard_normal(40_000) * 0.1).astype(np.float32),
        "silence": np.zeros(16_000, np.float32),
        "too long": rng.standard_normal(35 * 16_000).astype(np.float32),
    }


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("name", sounds())
def test_spectrograms_are_those_of_transformers(name: str, mels: int) -> None:
    sound = sounds()[name]
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
    expected = extractor(sound, sampling_rate=16_000, return_tensors="np")["input_features"]
    (found,) = evaluate(log_mel, [sound], {"mels": mels}, [np.float32])
    assert found.shape == expected.shape == (1, mels, 3000)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_what_makes_no_sense_is_refused_by_its_rule() -> None:
    sound = Fact(TensorType(f32, (100,)))
    (kind,) = log_mel.infer([sound], {"mels": 128, "seconds": 10})
    assert kind == TensorType(f32, (1, 128, 1000))
    for attrs in ({"mels": 0, "seconds": 30}, {"mels": 80, "seconds": 10**9}, {"mels": "many", "seconds": 30}):
        with pytest.raises(ValueError, match="spectrogram"):
            log_mel.infer([sound], attrs)
    with pytest.raises(ValueError, match="one axis"):
        log_mel.infer([Fact(TensorType(f32, (2, 100)))], {"mels": 80, "seconds": 30})
