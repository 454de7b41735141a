"""Descriptors of a recording: a set for each dispatch that has some, all made and filled at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from assay.targets.vulkan import api
from assay.targets.vulkan.api import constant, struct
from assay.targets.vulkan.device import VulkanDevice

_WRITE = np.dtype(api.STRUCTS["VkWriteDescriptorSet"])
_REACH = ctypes.sizeof(api.STRUCTS["VkDescriptorBufferInfo"])


class DescriptorSets:
    """Sets by number, each with descriptors of parts of buffers."""

    def __init__(
        self, device: VulkanDevice, layouts: Sequence[int], reached: Sequence[Sequence[tuple[int, ...]]]
    ) -> None:
        """`reached` has for each set what its descriptors reach: buffer, begin and end, then an address."""
        self._device, count = device, len(layouts)
        counts = np.array([len(each) for each in reached], np.uint32)
        words = np.fromiter(chain.from_iterable(chain.from_iterable(reached)), np.uint64).reshape(-1, 4)
        infos = words[:, :3] - words[:, 1:2] * np.array([0, 0, 1], np.uint64)
        kind = constant("DESCRIPTOR_TYPE_STORAGE_BUFFER")
        size = struct("DescriptorPoolSize", type=kind, descriptorCount=int(counts.sum()))
        self._pool = device.made("DescriptorPool", maxSets=count, poolSizeCount=1, pPoolSizes=size)
        wanted = struct(
            "DescriptorSetAllocateInfo",
            descriptorPool=self._pool,
            descriptorSetCount=count,
            pSetLayouts=api.array("u64", layouts),
        )
        self._sets = (ctypes.c_uint64 * count)()
        device.api.AllocateDescriptorSets(device.handle, ctypes.byref(wanted), ctypes.byref(self._sets))
        writes: Any = np.zeros(count, _WRITE)
        writes["sType"], writes["descriptorType"] = struct("WriteDescriptorSet").sType, kind
        writes["dstSet"], writes["descriptorCount"] = self._sets, counts
        writes["pBufferInfo"] = infos.ctypes.data + _REACH * (np.cumsum(counts, dtype=np.uint64) - counts)
        device.api.UpdateDescriptorSets(device.handle, count, writes.ctypes.data, 0, None)

    def reference(self, at: int) -> Any:
        """A pointer to a set."""
        return ctypes.byref(self._sets, 8 * at)

    def free(self) -> None:
        """Give them back; no run that uses them is under way."""
        self._device.api.DestroyDescriptorPool(self._device.handle, self._pool, None)
