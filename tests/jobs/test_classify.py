"""What images and texts are, beside transformers: pixels, scores, and commands."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
PIL = pytest.importorskip("PIL.Image")
from jobs.small_models import byte_tokenizer, save_text_classifier  # noqa: E402

import assay  # noqa: E402
from assay.errors import AssayError, BadArgument, FileMissing, ImportFailed, LimitExceeded  # noqa: E402
from assay.ir.dtypes import Array  # noqa: E402
from assay.jobs.classify import seeing_of  # noqa: E402
from assay.jobs.classifying import Classifier  # noqa: E402
from assay.jobs.definitions.images import FILTERS, crop_image, resize_image  # noqa: E402
from assay.jobs.image_files import ImageBytes, ImagePixels, image_file  # noqa: E402
from assay.jobs.job import read_text  # noqa: E402
from assay.ops.registry import evaluate  # noqa: E402


def picture(height: int, width: int, seed: int = 0) -> Array:
    """Patches of colour, with hard edges and noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 7 + 1, width // 5 + 1, 3))
    whole = np.repeat(np.repeat(coarse, 7, 0), 5, 1)[:height, :width]
    return np.clip(whole + rng.integers(-9, 9, whole.shape), 0, 255).astype(np.uint8)


def png(pixels: Array) -> bytes:
    out = io.BytesIO()
    PIL.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


# --- pixels


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_is_that_of_torch_but_for_rounding(name: str) -> None:
    """Of bilinear filters, as the two have other cubic ones."""
    pixels = picture(50, 70)
    attrs = {"size": (32, 40), "shortest": 0, "filter": name}
    (found,) = evaluate(resize_image, [pixels], attrs, [np.uint8])
    assert found.shape == (32, 40, 3)
    if name != "bilinear":
        return
    given = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(given, (32, 40), mode=name, antialias=True, align_corners=False)
    assert np.abs(found - resized[0].permute(1, 2, 0).numpy()).max() <= 1.5


def test_the_shortest_edge_and_the_middle() -> None:
    attrs = {"size": (), "shortest": 20, "filter": "bilinear"}
    (found,) = evaluate(resize_image, [picture(40, 90)], attrs, [np.uint8])
    assert found.shape == (20, 45, 3)
    (cut,) = evaluate(crop_image, [found], {"size": (16, 60)}, [np.uint8])
    np.testing.assert_array_equal(cut[:, 8:53], found[2:18])
    assert not cut[:, :8].any()
    assert not cut[:, 53:].any()


@pytest.mark.parametrize(
    "processor",
    [
        lambda: transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}),
        lambda: transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
    ],
    ids=["vit", "clip"],
)
@pytest.mark.parametrize("size", [(60, 41), (20, 33), (32, 32)])
def test_images_are_made_ready_as_transformers_does_it(processor: Any, size: tuple[int, int], tmp_path: Path) -> None:
    made, pixels = processor(), picture(*size)
    made.save_pretrained(tmp_path)
    told = json.loads((tmp_path / "preprocessor_config.json").read_text())
    expected = made(PIL.fromarray(pixels), return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(prepared(seeing_of(told, 32), pixels), expected, atol=2e-6)


def prepared(seeing: Any, pixels: Array) -> Array:
    """What a job gives a model for an image."""
    from assay.ir import dtypes
    from assay.jobs import classify
    from assay.jobs.building import JobBuilder

    b = JobBuilder("see", {})
    job = b.job({"features": classify._seen(b, seeing, dtypes.f32)})
    return job.run({"image": ImagePixels(pixels)})["features"]


@pytest.mark.parametrize(
    "told",
    [
        {"size": {"height": -1, "width": 3}},
        {"size": "large"},
        {"size": {"longest_edge": 3}},
        {"resample": 99},
        {"image_mean": [1, 2]},
        {"image_std": ["a", "b", "c"]},
    ],
)
def test_what_makes_no_sense_beside_a_model_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ImportFailed):
        seeing_of(told, 32)


def test_damaged_images_give_typed_errors_or_pixels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng, content = np.random.default_rng(5), png(picture(20, 30))
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        try:
            ImageBytes(bytes(damaged[: rng.integers(20, len(damaged) + 1)]), "it").read()
            outcomes["read"] += 1
        except AssayError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 100, outcomes
    monkeypatch.setattr("assay.jobs.image_files.MOST_PIXELS", 100)
    with pytest.raises(LimitExceeded, match="pixels"):
        ImageBytes(content, "it").read()
    with pytest.raises(BadArgument, match="no image"):
        ImagePixels(np.zeros((3, 3))).read()
    with pytest.raises(FileMissing):
        image_file(tmp_path / "nothing.png")


# --- models


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        id2label={0: "cat", 1: "dog", 2: "fox"}, label2id={"cat": 0, "dog": 1, "fox": 2}, initializer_range=0.5,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).eval().save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    (folder / "picture.png").write_bytes(png(picture(50, 60)))
    return folder


def check(found: list[tuple[str, float]], labels: list[str], odds: Any) -> None:
    assert [label for label, _ in found] == [labels[at] for at in np.argsort(-odds, kind="stable")]
    np.testing.assert_allclose([each for _, each in found], np.sort(odds)[::-1], atol=1e-5)


def test_classes_of_images(vit: Path) -> None:
    classifier = assay.pipeline("classify", vit, target="cpu")
    assert isinstance(classifier, Classifier)
    model = transformers.ViTForImageClassification.from_pretrained(vit).eval()
    processor = transformers.ViTImageProcessorPil.from_pretrained(vit)
    for seed in range(3):
        pixels = picture(50, 60, seed)
        with torch.no_grad():
            logits = model(**processor(PIL.fromarray(pixels), return_tensors="pt")).logits
        check(classifier(pixels), ["cat", "dog", "fox"], logits.softmax(-1)[0].numpy())
    assert classifier(vit / "picture.png") == classifier(picture(50, 60))
    assert read_text(classifier.job.text).digest == classifier.job.digest
    with pytest.raises(BadArgument, match="has classes"):
        classifier(pixels, ["cat"])


def test_classes_of_texts(tmp_path: Path) -> None:
    backend, model = save_text_classifier(tmp_path)
    classifier = assay.pipeline("classify", tmp_path, target="cpu")
    for text in ("The quick brown fox", "jumps over", "the lazy dog " * 40):
        tokens = backend.encode(text).ids[:40]
        with torch.no_grad():
            odds = model(torch.tensor([tokens])).logits.softmax(-1)[0].numpy()
        check(classifier(text), ["good", "bad"], odds)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    folder, backend = tmp_path_factory.mktemp("clip"), byte_tokenizer(300)
    from tokenizers import processors

    end = backend.token_to_id("<|end|>")
    backend.post_processor = processors.TemplateProcessing(single=["$A", "<|end|>"], special_tokens=[("<|end|>", end)])
    sizes = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": 300, "max_position_embeddings": 40, "eos_token_id": end, "bos_token_id": 1}
    vision = {**sizes, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16, initializer_factor=20.0)
    transformers.CLIPModel(config).eval().save_pretrained(folder)
    size = {"height": 32, "width": 32}
    transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=size).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_images_by_descriptions(clip: Path) -> None:
    classifier = assay.pipeline("classify", clip, target="cpu")
    names, pixels = ["fox", "lazy dog", "quick brown thing"], picture(50, 60)
    model = transformers.CLIPModel.from_pretrained(clip).eval()
    processor = transformers.CLIPImageProcessorPil.from_pretrained(clip)
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(clip / "tokenizer.json"))
    rows = [backend.encode(f"a photo of a {name}.").ids for name in names]
    longest = max(map(len, rows))
    tokens = torch.tensor([row + row[-1:] * (longest - len(row)) for row in rows])
    images = processor(PIL.fromarray(pixels), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        odds = model(input_ids=tokens, pixel_values=images).logits_per_image.softmax(-1)[0].numpy()
    check(classifier(pixels, names), names, odds)
    with pytest.raises(BadArgument, match="chooses among names"):
        classifier(pixels)
    with pytest.raises(BadArgument, match="no place"):
        classifier(pixels, names, template="a photo")


# --- the command


def test_the_command(vit: Path, clip: Path, call: Any, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    code, out, err = call("classify", vit, vit / "picture.png", "--json", result, "--compare-with", "reference")
    assert code == 0, err
    best = json.loads(result.read_text())["results"][0]["labels"][0]
    assert best["label"] in out
    assert "reference: the same" in out
    code, out, err = call("classify", clip, vit / "picture.png", "--name", "fox", "--name", "dog")
    assert code == 0, err
    assert "fox" in out
    code, _, err = call("classify", vit, tmp_path / "nothing.png")
    assert code == 2
    assert "no file" in err
