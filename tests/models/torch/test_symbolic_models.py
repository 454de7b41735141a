"""The ten models whose symbolic shapes earlier compilers could not take: one graph serves every length."""

from __future__ import annotations

import pytest
import torch

from assay.zoo.torch import MODELS
from models.torch.common import clean_compiler as clean_compiler
from models.torch.common import tensors, watched

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
    with watched() as work:
        for length in model.lengths:
            inputs = model.example(module, length)
            torch.manual_seed(7)
            expected = tensors(module(**inputs))
            torch.manual_seed(7)
            found = tensors(compiled(**inputs))
            # Boxes are differences of numbers as large as the image: the error goes with those.
            largest = max(float(each.abs().max()) for each in expected)
            torch.testing.assert_close(found, expected, rtol=1.3e-6, atol=max(1e-5, 1e-6 * largest))
    assert len(work.graphs) == GRAPHS.get(name, 1)
    assert work.nodes_run > 0
    assert work.opaque() == OPAQUE.get(name, set())
