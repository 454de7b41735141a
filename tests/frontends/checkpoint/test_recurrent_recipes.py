"""Recurrent models: RWKV 4 as Hugging Face's library computes it, RWKV 7 as the published formulas do, in f64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from frontends.checkpoint.recipe_models import (
    VOCABULARY,
    Stepper,
    assert_near,
    assert_same_steps,
    greedy,
    prompt,
    saved,
)
from transformers import RwkvConfig

from assay.frontends.checkpoint import load_model
from assay.ir.dtypes import Array
from assay.ir.verify import verify
from assay.ops.levels import core_level


class TheirRwkv:
    """The library's model, called step by step. It takes one text: of several, single tokens are mixed up in it."""

    def __init__(self, model: Any) -> None:
        self.model, self.state = model, None

    def __call__(self, tokens: Array) -> Array:
        with torch.no_grad():
            found = self.model(input_ids=torch.from_numpy(tokens), state=self.state, use_cache=True)
        self.state = found.state
        return found.logits.numpy()


SMALL_RWKV = RwkvConfig(
    vocab_size=VOCABULARY,
    context_length=256,
    hidden_size=32,
    num_hidden_layers=3,
    intermediate_size=48,
)


def test_rwkv4(tmp_path: Path) -> None:
    model = saved(tmp_path, SMALL_RWKV)
    graph = load_model(tmp_path).graphs["decoder"]
    verify(graph, core_level)
    ours, tokens = Stepper(graph, "cpu"), prompt(1, 16)
    assert_same_steps(ours, TheirRwkv(model), tokens)
    ours.start(1)
    assert greedy(ours, tokens, 200) == greedy(TheirRwkv(model), tokens, 200)
    both = np.concatenate([tokens[:, ::-1], tokens])
    ours.start(2)
    first, second = ours(both[:, :9]), ours(both[:, 9:])
    assert_near(np.concatenate([first, second], axis=1)[1:], TheirRwkv(model)(tokens))


AUTHORS_NAMES = {
    "rwkv.": "",
    "embeddings.": "emb.",
    "pre_ln": "ln0",
    "attention.": "att.",
    "feed_forward.": "ffn.",
    "time_mix_key": "time_mix_k",
    "time_mix_value": "time_mix_v",
    "time_mix_receptance": "time_mix_r",
}


def test_rwkv4_as_its_author_saves_it(tmp_path: Path) -> None:
    model = saved(tmp_path, SMALL_RWKV)
    state: dict[str, torch.Tensor] = {}
    for name, weight in model.state_dict().items():
        for theirs, his in AUTHORS_NAMES.items():
            name = name.replace(theirs, his)
        state[name] = weight
    torch.save(state, tmp_path / "model.pth")
    ours = Stepper(load_model(tmp_path / "model.pth").graphs["decoder"], "cpu")
    assert_same_steps(ours, TheirRwkv(model), prompt(1, 16))


# --- RWKV 7

WIDTH, HEADS, LAYERS, INNER = 32, 4, 3, 48
RANKS = {"w": 5, "a": 6, "v": 7, "g": 9}


def rwkv7_weights() -> dict[str, Array]:
    """Random weights under the names of published files."""
    rng = np.random.default_rng(5)
    found: dict[str, Array] = {}

    def add(name: str, *shape: int, around: float = 0.0) -> None:
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 0.3
        found[name] = (around + scale * rng.standard_normal(shape)).astype(np.float32)

    def add_norm(name: str) -> None:
        add(f"{name}.weight", WIDTH, around=1.0)
        add(f"{name}.bias", WIDTH)

    add("emb.weight", VOCABULARY, WIDTH)
    add_norm("blocks.0.ln0")
    for layer in range(LAYERS):
        block = f"blocks.{layer}"
        for norm in ("ln1", "ln2", "att.ln_x"):
            add_norm(f"{block}.{norm}")
        for part in "rwkvag":
            add(f"{block}.att.x_{part}", 1, 1, WIDTH, around=0.5)
        for part, rank in RANKS.items():
            if part == "v" and layer == 0:
                continue
            add(f"{block}.att.{part}1", WIDTH, rank)
            add(f"{block}.att.{part}2", rank, WIDTH)
            if part != "g":
                add(f"{block}.att.{part}0", 1, 1, WIDTH)
        add(f"{block}.att.k_k", 1, 1, WIDTH, around=1.0)
        add(f"{block}.att.k_a", 1, 1, WIDTH, around=1.0)
        add(f"{block}.att.r_k", HEADS, WIDTH // HEADS)
        for part in ("receptance", "key", "value", "output"):
            add(f"{block}.att.{part}.weight", WIDTH, WIDTH)
        add(f"{block}.ffn.x_k", 1, 1, WIDTH, around=0.5)
        add(f"{block}.ffn.key.weight", INNER, WIDTH)
        add(f"{block}.ffn.value.weight", WIDTH, INNER)
    add_norm("ln_out")
    add("head.weight", VOCABULARY, WIDTH)
    return found


class Rwkv7InDoubles:
    """One text, token by token, by the formulas of the paper (arXiv 2503.14456) in f64."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = {name: weight.astype(np.float64).squeeze() for name, weight in weights.items()}
        size = WIDTH // HEADS
        self.shifts = np.zeros((LAYERS, 2, WIDTH))
        self.memory = np.zeros((LAYERS, HEADS, size, size))

    def token(self, token: int) -> Array:
        """The logits after a further token."""
        w = self.weights
        x, first = self.norm("blocks.0.ln0", w["emb.weight"][token]), None
        for layer in range(LAYERS):
            change, first = self.time_mixing(layer, self.norm(f"blocks.{layer}.ln1", x), first)
            x = x + change
            x = x + self.channel_mixing(layer, self.norm(f"blocks.{layer}.ln2", x))
        return w["head.weight"] @ self.norm("ln_out", x)

    def norm(self, name: str, x: Array) -> Array:
        deviation = np.sqrt(x.var() + 1e-5)
        return (x - x.mean()) / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def time_mixing(self, layer: int, x: Array, first: Array | None) -> tuple[Array, Array]:
        p = {name.split("att.")[1]: w for name, w in self.weights.items() if name.startswith(f"blocks.{layer}.att.")}
        mixed = {part: x + (self.shifts[layer, 0] - x) * p[f"x_{part}"] for part in "rwkvag"}
        self.shifts[layer, 0] = x
        r, k, v = (p[f"{name}.weight"] @ mixed[name[0]] for name in ("receptance", "key", "value"))
        decay = np.exp(-np.exp(-0.5) * sigmoid(p["w0"] + np.tanh(mixed["w"] @ p["w1"]) @ p["w2"]))
        rate = sigmoid(p["a0"] + mixed["a"] @ p["a1"] @ p["a2"])
        gate = sigmoid(mixed["g"] @ p["g1"]) @ p["g2"]
        if first is not None:
            v = v + (first - v) * sigmoid(p["v0"] + mixed["v"] @ p["v1"] @ p["v2"])
        removed = (k * p["k_k"]).reshape(HEADS, -1)
        removed /= np.linalg.norm(removed, axis=1, keepdims=True)
        k = k * (1 + (rate - 1) * p["k_a"])
        results: list[Array] = []
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            kappa = removed[head]
            turn = np.diag(decay[part]) - np.outer(kappa, kappa * rate[part])
            self.memory[layer, head] = self.memory[layer, head] @ turn + np.outer(v[part], k[part])
            seen = self.memory[layer, head] @ r[part]
            normal = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-5 * (WIDTH // HEADS))
            own = (r[part] * k[part] * p["r_k"][head]).sum() * v[part]
            results.append(normal * p["ln_x.weight"][part] + p["ln_x.bias"][part] + own)
        return p["output.weight"] @ (np.concatenate(results) * gate), v if first is None else first

    def channel_mixing(self, layer: int, x: Array) -> Array:
        p = {name.split("ffn.")[1]: w for name, w in self.weights.items() if name.startswith(f"blocks.{layer}.ffn.")}
        mixed = x + (self.shifts[layer, 1] - x) * p["x_k"]
        self.shifts[layer, 1] = x
        return p["value.weight"] @ np.maximum(p["key.weight"] @ mixed, 0) ** 2


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Rows:
    """Several texts by the formulas."""

    def __init__(self, weights: dict[str, Array], rows: int) -> None:
        self.rows = [Rwkv7InDoubles(weights) for _ in range(rows)]

    def __call__(self, tokens: Array) -> Array:
        found = [[row.token(token) for token in text] for row, text in zip(self.rows, tokens, strict=True)]
        return np.array(found, np.float32)


def test_rwkv7(tmp_path: Path) -> None:
    weights = rwkv7_weights()
    torch.save({name: torch.from_numpy(weight) for name, weight in weights.items()}, tmp_path / "model.pth")
    found = load_model(tmp_path / "model.pth")
    assert (found.family, dict(found.configuration.ranks)) == ("rwkv7", RANKS)
    graph = found.graphs["decoder"]
    verify(graph, core_level)
    ours, tokens = Stepper(graph, "cpu"), prompt(2, 16)
    assert_same_steps(ours, Rows(weights, 2), tokens)
    ours.start(2)
    assert greedy(ours, tokens, 200) == greedy(Rows(weights, 2), tokens, 200)
    ours.start(2)
    assert_near(ours(tokens), Rows(weights, 2)(tokens))
