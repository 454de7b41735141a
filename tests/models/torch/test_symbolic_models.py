"""The ten models whose symbolic shapes earlier compilers could not take: one graph serves every length."""

from __future__ import annotations

import pytest
import torch

from assay.evidence.sweep.accuracy import judged
from assay.evidence.sweep.subjects import SEED, Subject, named_arrays
from assay.ir.dtypes import Array
from assay.ops.registry import widen
from assay.zoo.torch import MODELS
from models.torch.common import clean_compiler as clean_compiler
from models.torch.common import watched

TEN = ["Whisper", "t5-small", "t5-base", "t5-large", "FLAN-T5", "OPT", "GPTNeo", "codegen", "speecht5-tts", "YOLOv5"]
GRAPHS = {"YOLOv5": 2}
"""One, unless said here: the detector's head keeps the anchors of the last size, so that dynamo compiles for each."""
OPAQUE = {"speecht5-tts": {"aten.bernoulli.p"}}
"""The speech model draws its prenet's dropout from torch's generator, also in eval mode."""


@pytest.mark.parametrize("name", TEN)
def test_one_graph_for_all_lengths(name: str) -> None:
    model = MODELS[name]
    module = model.build()
    compiled = torch.compile(module, backend="assay", dynamic=True)
    seen: list[tuple[Subject, dict[str, Array], dict[str, Array]]] = []
    with watched() as work:
        for length in model.lengths:
            subject = Subject(module, model.example(module, length))
            torch.manual_seed(SEED)
            plain = named_arrays(module(**subject.inputs))
            torch.manual_seed(SEED)
            seen.append((subject, plain, named_arrays(compiled(**subject.inputs))))
    for subject, plain, found in seen:
        exact = subject.exact().outputs
        assert found.keys() == plain.keys() == exact.keys()
        verdicts = [judged(key, found[key], plain[key], widen(exact[key])) for key in plain]
        assert all(verdict.ok for verdict in verdicts), verdicts
    assert len(work.graphs) == GRAPHS.get(name, 1)
    assert work.nodes_run > 0
    assert work.opaque() == OPAQUE.get(name, set())
