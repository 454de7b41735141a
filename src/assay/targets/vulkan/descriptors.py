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
from assay.targets.vulkan.pipelines import Pipeline

_WRITE = np.dtype(api.STRUCTS["VkWriteDescriptorSet"])
_REACH = ctypes.sizeof(api.STRUCTS["VkDescriptorBufferInfo"])
_FORMATS = {1: "FORMAT_R32_UINT", 4: "FORMAT_R32G32B32A32_UINT"}
"""Texels by the number of their elements."""


class DescriptorSets:
    """Sets by number, each with descriptors of parts of buffers."""

    def __init__(
        self, device: VulkanDevice, pipelines: Sequence[Pipeline], reached: Sequence[Sequence[tuple[int, ...]]]
    ) -> None:
        """`reached` has for each set what its descriptors reach: buffer, begin and end, then an address."""
        self._device = device
        self._views: dict[tuple[int, int, int, int], int] = {}
        counts = np.array([len(each) for each in reached], np.uint32)
        total, kind = int(counts.sum()), constant("DESCRIPTOR_TYPE_STORAGE_BUFFER")
        self._sets = self._made(pipelines, total)
        words = np.fromiter(chain.from_iterable(chain.from_iterable(reached)), np.uint64).reshape(-1, 4)
        infos = words[:, :3] - words[:, 1:2] * np.array([0, 0, 1], np.uint64)
        writes: Any = np.zeros(total, _WRITE)
        firsts = np.cumsum(counts, dtype=np.uint64) - counts
        writes["sType"], writes["descriptorType"] = struct("WriteDescriptorSet").sType, kind
        writes["descriptorCount"] = 1
        writes["dstSet"] = np.repeat(np.frombuffer(self._sets, np.uint64), counts)
        writes["dstBinding"] = np.arange(total) - np.repeat(firsts, counts)
        writes["pBufferInfo"] = infos.ctypes.data + _REACH * np.arange(total)
        views = [
            (int(first) + at, self._view(infos[int(first) + at], texels))
            for pipeline, first in zip(pipelines, firsts, strict=True)
            for at, texels in enumerate(pipeline.texels)
            if texels
        ]
        handles = api.array("u64", [view for _, view in views])
        for index, (at, _) in enumerate(views):
            writes["descriptorType"][at] = constant("DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER")
            writes["pTexelBufferView"][at] = ctypes.addressof(handles) + 8 * index
        device.api.UpdateDescriptorSets(device.handle, total, writes.ctypes.data, 0, None)

    def _made(self, pipelines: Sequence[Pipeline], total: int) -> Any:
        kinds = ("STORAGE_BUFFER", "UNIFORM_TEXEL_BUFFER")
        sizes = [
            struct("DescriptorPoolSize", type=constant(f"DESCRIPTOR_TYPE_{kind}"), descriptorCount=total)
            for kind in kinds
        ]
        listed, count = api.structs("DescriptorPoolSize", sizes), len(pipelines)
        self._pool = self._device.made("DescriptorPool", maxSets=count, poolSizeCount=len(sizes), pPoolSizes=listed)
        layouts = api.array("u64", [each.descriptors for each in pipelines])
        wanted = struct(
            "DescriptorSetAllocateInfo", descriptorPool=self._pool, descriptorSetCount=count, pSetLayouts=layouts
        )
        made = (ctypes.c_uint64 * count)()
        self._device.api.AllocateDescriptorSets(self._device.handle, ctypes.byref(wanted), ctypes.byref(made))
        return made

    def _view(self, info: Any, texels: int) -> int:
        """A view of a part of a buffer as texels."""
        buffer, offset, size = (int(word) for word in info)
        key = (buffer, offset, size, texels)
        if key not in self._views:
            whole = max(size // (4 * texels), 1) * 4 * texels
            kind = constant(_FORMATS[texels])
            self._views[key] = self._device.made("BufferView", buffer=buffer, format=kind, offset=offset, range=whole)
        return self._views[key]

    def reference(self, at: int) -> Any:
        """A pointer to a set."""
        return ctypes.byref(self._sets, 8 * at)

    def free(self) -> None:
        """Give them back; no run that uses them is under way."""
        self._device.api.DestroyDescriptorPool(self._device.handle, self._pool, None)
        for view in self._views.values():
            self._device.api.DestroyBufferView(self._device.handle, view, None)
