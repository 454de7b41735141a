"""`assay.pipeline("classify", …)`: what an image or a text is. Thin views of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadArgument
from assay.frontends.checkpoint import ImportedModel, load_model
from assay.frontends.checkpoint.recipes.bert import BertConfiguration
from assay.frontends.checkpoint.recipes.clip import ClipConfiguration
from assay.frontends.checkpoint.recipes.vit import VitConfiguration
from assay.ir.dtypes import Array
from assay.ir.graph import Graph
from assay.jobs.classify import described_job, image_job, seeing_of, text_job
from assay.jobs.image_files import Image, ImagePixels, image_file
from assay.jobs.job import JobGraph
from assay.jobs.models import JobModel
from assay.jobs.tokenizers import make_tokenizer, read_table
from assay.ops.definitions.text import strings
from assay.runtime.options import SessionOptions
from assay.targets.budget import Budget
from assay.zoo.checkpoints import checkpoint_path

PHOTO = "a photo of a {}."
"""How a name becomes a text that describes an image."""


class Classifier:
    """Says what an image or a text is. `takes` is one of `image` and `text`; with `describes`, names of what may be
    seen must be given."""

    def __init__(self, job: JobGraph, links: Mapping[str, Any], takes: str, describes: bool = False) -> None:
        self.job, self.takes, self.describes = job, takes, describes
        self._links = dict(links)

    def __call__(
        self,
        given: str | Path | Array | Image,
        names: Sequence[str] = (),
        *,
        template: str = PHOTO,
        budget: Budget | None = None,
    ) -> list[tuple[str, float]]:
        """Labels and their probabilities, best first, of an image (a file, or pixels u8 of height, width and three
        colours) or of a text. Models such as CLIP choose among names, each described by the template."""
        if bool(names) != self.describes:
            message = "the model chooses among names that it is given" if self.describes else "the model has classes"
            raise BadArgument(message, hint="give names" if self.describes else "give no names")
        if "{}" not in template:
            raise BadArgument(f"the template '{template}' has no place for a name", hint="it is {}")
        more: dict[str, Any] = {"image": _opened(given)} if self.takes == "image" else {"text": str(given)}
        if names:
            more |= {"names": strings(list(names)), "texts": strings([template.replace("{}", each) for each in names])}
        found = self.job.run({**self._links, **more}, budget=budget)
        return list(zip(found["labels"].tolist(), found["odds"].tolist(), strict=True))


def _opened(given: str | Path | Array | Image) -> Image:
    if isinstance(given, np.ndarray):
        return ImagePixels(given)
    return image_file(given) if isinstance(given, str | Path) else given


def open_classifier(source: str | Path | ImportedModel, options: SessionOptions | None = None) -> Classifier:
    """The model in a folder as one that says what something is. BadArgument if it does something else."""
    model = source if isinstance(source, ImportedModel) else load_model(checkpoint_path(source))
    known = model.configuration
    if isinstance(known, ClipConfiguration):
        return _describing(model, known, options)
    if not isinstance(known, VitConfiguration | BertConfiguration) or not known.labels:
        raise BadArgument(
            f"this model of the family '{model.family}' has no classes", hint="ViT, BERT and CLIP may have"
        )
    encoder, graph = _called(model, "encoder", options), model.graphs["encoder"]
    place, labels = graph.output_names.index("logits"), _labels(model, known.labels)
    if isinstance(known, VitConfiguration):
        seeing = seeing_of(_preprocessor(model), known.image)
        job = image_job(encoder.digest, _kinds(graph), place, labels, seeing, _taken(graph))
        return Classifier(job, {"encoder": encoder}, "image")
    tokenizer = make_tokenizer(model.tokenizer.files, model.tokenizer.facts)
    longest = known.positions - known.first_position
    job = text_job(encoder.digest, tokenizer.digest, _kinds(graph), place, labels, longest)
    return Classifier(job, {"encoder": encoder, "tokenizer": tokenizer}, "text")


def _describing(model: ImportedModel, known: ClipConfiguration, options: SessionOptions | None) -> Classifier:
    parts = {name: _called(model, name, options) for name in ("image", "text")}
    tokenizer = make_tokenizer(model.tokenizer.files, model.tokenizer.facts)
    stored = model.checkpoint.tensors.get("logit_scale")
    job = described_job(
        (parts["image"].digest, parts["text"].digest),
        tokenizer.digest,
        (_kinds(model.graphs["image"]), _kinds(model.graphs["text"])),
        seeing_of(_preprocessor(model), known.image),
        scale=100.0 if stored is None else float(np.exp(np.asarray(stored.array(), np.float64))),
        longest=known.positions,
        dtype=_taken(model.graphs["image"]),
    )
    links = {"image_encoder": parts["image"], "text_encoder": parts["text"], "tokenizer": tokenizer}
    return Classifier(job, links, "image", describes=True)


def _called(model: ImportedModel, name: str, options: SessionOptions | None) -> JobModel:
    return JobModel(model.graphs[name], f"sha256:{model.digest}:{name}", options)


def _kinds(graph: Graph) -> list[str]:
    return [str(value.type) for value in graph.outputs]


def _taken(graph: Graph) -> Any:
    kind: Any = graph.inputs[0].type
    return kind.dtype


def _preprocessor(model: ImportedModel) -> Mapping[str, Any]:
    path = model.tokenizer.files.get("preprocessor_config.json")
    return {} if path is None else read_table(path)


def _labels(model: ImportedModel, count: int) -> list[str]:
    """What the configuration calls the classes, else their numbers."""
    facts = model.checkpoint.facts
    told: Any = facts.get("config.id2label", {})
    named = {**{f"config.id2label.{key}": value for key, value in told.items()}, **facts}
    return [str(named.get(f"config.id2label.{at}", at)) for at in range(count)]
