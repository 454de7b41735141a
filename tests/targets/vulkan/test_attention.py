"""Attention as one kernel against torch's: more keys than a workgroup takes at once, masks, shared heads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from programs import placed_on

from assay.ir import dtypes
from assay.ir.dims import symbol
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.reference import ReferenceTarget
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice

TARGET = VulkanTarget("exact", DEFAULT)


class Case(NamedTuple):
    """Query heads, key heads, queries, keys, size, size of values."""

    sizes: tuple[int, int, int, int, int, int]
    causal: bool = False
    mask: str = ""
    scale: float | None = None


CASES = {
    "long": Case((2, 2, 37, 83, 20, 12)),
    "causal": Case((4, 2, 45, 45, 16, 40), causal=True, scale=0.3),
    "masked": Case((3, 1, 19, 70, 8, 65), mask="bool"),
    "biased": Case((2, 2, 1, 130, 64, 64), mask="float"),
}


@pytest.mark.parametrize("restricted", ["", "no-subgroups,bindings,push=16", "subgroup=32,addresses"], indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_that_of_torch(name: str, restricted: VulkanDevice) -> None:
    case, rng = CASES[name], np.random.default_rng(3)
    heads, groups, queries, keys, size, out = case.sizes
    shapes = ((2, heads, queries, size), (2, groups, keys, size), (2, groups, keys, out))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    mask = _mask(rng, case.mask, queries, keys)
    length = symbol("keys", 1)
    b = Builder()
    kinds = [(2, heads, queries, size), (2, groups, length, size), (2, groups, length, out)]
    inputs = [b.input(TensorType(dtypes.f32, shape)) for shape in kinds]
    if mask is not None:
        inputs.append(b.input(TensorType(dtypes.of(mask), (queries, length))))
    graph = b.finish("attention", inputs, b.emit("sdpa", *inputs, causal=case.causal, scale=case.scale))
    program = placed_on(TARGET, graph)
    found = program.run([*arrays, *([] if mask is None else [mask])])[0]
    told = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(each) for each in arrays),
        attn_mask=None if mask is None else torch.from_numpy(mask),
        is_causal=case.causal,
        scale=case.scale,
        enable_gqa=True,
    )
    np.testing.assert_allclose(found, told.nan_to_num(0).numpy(), rtol=1e-4, atol=1e-5)
    assert [node.op for node in graph.nodes] == ["sdpa"]
    assert TARGET.support(graph.nodes[0]).ok


def _mask(rng: np.random.Generator, kind: str, queries: int, keys: int) -> Any:
    if kind == "bool":
        mask = rng.random((queries, keys)) < 0.5
        mask[3] = False
        return mask
    return rng.standard_normal((queries, keys)).astype(np.float32) if kind else None


def test_keys_that_are_left_out_count_if_they_are_no_numbers(device: VulkanDevice) -> None:
    b = Builder()
    inputs = [b.input(TensorType(dtypes.f32, (1, 3, 45, 8))) for _ in range(3)]
    graph = b.finish("causal", inputs, b.emit("sdpa", *inputs, causal=True))
    program, oracle = placed_on(TARGET, graph), ReferenceTarget().compile(graph)
    for side in range(3):
        arrays = [np.random.default_rng(side).standard_normal((1, 3, 45, 8)).astype(np.float32) for _ in range(3)]
        for head, odd in enumerate((np.nan, np.inf, -np.inf)):
            arrays[side][0, head, 40, 3] = odd
        right = oracle.run(arrays)[0]
        assert not np.isfinite(right).all()
        np.testing.assert_allclose(program.run(arrays)[0], right, rtol=1e-4, atol=1e-5)
