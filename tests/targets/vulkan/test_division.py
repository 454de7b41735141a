"""Division of u32 where lanes would divide one after the other."""

from __future__ import annotations

from itertools import product

import numpy as np
from programs import placed_on

from assay.ir.dtypes import u32
from assay.ir.types import TensorType
from assay.limits import DEFAULT
from assay.ops.builder import Builder
from assay.targets.vulkan import VulkanTarget
from assay.targets.vulkan.device import VulkanDevice, chosen_profile
from assay.targets.vulkan.shader import Shader
from assay.targets.vulkan.spirv import Op

TARGET = VulkanTarget("exact", DEFAULT)


def edges() -> list[int]:
    """Where quotients go wrong first: around powers of two, and multiples of divisors."""
    near = {(1 << bit) + off for bit in range(33) for off in (-2, -1, 0, 1, 2)}
    return sorted(each for each in near if 0 < each < 1 << 32)


def test_quotients_are_exact(device: VulkanDevice) -> None:
    rng = np.random.default_rng(3)
    pairs = np.array([*product(edges(), edges())], np.uint32)
    drawn = (rng.integers(1, 1 << 32, (20000, 2)) >> rng.integers(0, 31, (20000, 2))).clip(1).astype(np.uint32)
    multiples = (drawn[:, :1] // drawn[:, 1:] * drawn[:, 1:]).clip(1)
    whole = np.concatenate([pairs, drawn, np.concatenate([multiples, drawn[:, 1:]], 1)])
    whole = np.concatenate([whole, whole - np.array([1, 0], np.uint32)])
    x, y = np.ascontiguousarray(whole[:, 0]), np.ascontiguousarray(whole[:, 1])
    b = Builder()
    inputs = [b.input(TensorType(u32, each.shape)) for each in (x, y)]
    found = placed_on(TARGET, b.finish("div", inputs, [b.div(*inputs)])).run([x, y])[0]
    np.testing.assert_array_equal(found, x // y)


def test_what_a_kernel_is_told_is_prepared_once(device: VulkanDevice) -> None:
    def divisions(kind: str) -> tuple[int, int]:
        s = Shader(chosen_profile().restricted(kind), [u32], 3, 8)
        with s.items(s.rows) as item:
            s.operands[0].store(item, item / s.number(0) + item / s.number(0) + item / 3)
        words = np.frombuffer(s.finish(), np.uint32)[5:]
        ops = list[int]()
        while words.size:
            ops.append(int(words[0]) & 0xFFFF)
            words = words[int(words[0]) >> 16 :]
        return ops.count(Op.FDiv), ops.count(Op.UDiv)

    assert divisions("") == (1, 1)
    assert divisions("discrete") == (0, 3)
