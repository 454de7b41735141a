"""Pipelines: templates made ready for a device, once each. What the driver compiled is kept in the store."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import CompileFailed
from assay.store import Store, digest
from assay.targets.vulkan import api
from assay.targets.vulkan.api import constant, flags, struct
from assay.targets.vulkan.arguments import KernelArguments
from assay.targets.vulkan.device import VulkanDevice
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.templates import Template

_FORMAT = "vulkan pipelines 1"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A kernel that can be dispatched."""

    handle: ctypes.c_uint64
    layout: ctypes.c_uint64
    descriptors: int
    """The layout of its descriptors; 0 if it has none."""
    texels: tuple[int, ...]
    """For the first operands, the elements of the texels as which they are read."""
    arguments: KernelArguments


class Pipelines:
    """The pipelines of a device. Safe for threads."""

    def __init__(self, device: VulkanDevice, store: Store | None) -> None:
        self._device, self._store = device, store
        self._made: dict[tuple[Template, bool], Pipeline] = {}
        self._layouts: dict[tuple[tuple[bool, ...], int], tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._key = digest(_FORMAT, device.profile.identity)
        known = None if store is None else store.get(self._key)
        extra: dict[str, Any] = {} if not known else {"initialDataSize": len(known), "pInitialData": known}
        self._cache = device.made("PipelineCache", **extra)
        self._unsaved = 0

    def get(self, template: Template, addresses: bool) -> Pipeline:
        """The pipeline of a template whose operands are given by address, or by descriptors."""
        with self._lock:
            found = self._made.get((template, addresses))
            if found is None:
                found = self._made[template, addresses] = self._compiled(template, addresses)
                self._unsaved += 1
            return found

    def _compiled(self, template: Template, addresses: bool) -> Pipeline:
        device = self._device
        profile = replace(device.profile, addresses=addresses)
        code, arguments = template.built(profile), template.arguments(profile)
        texels = template.fetched(profile)
        kinds = tuple(at < len(texels) and texels[at] > 0 for at in range(arguments.bindings))
        layout, descriptors = self._layout(kinds, arguments.pushed)
        words = ctypes.create_string_buffer(code, len(code))
        module = device.made("ShaderModule", codeSize=len(code), pCode=ctypes.addressof(words))
        stage = struct(
            "PipelineShaderStageCreateInfo",
            stage=flags("SHADER_STAGE_COMPUTE"),
            module=module,
            pName=b"main",
            **_demanded(template, profile),
        )
        info = struct("ComputePipelineCreateInfo", stage=stage, layout=layout, basePipelineIndex=-1)
        made = ctypes.c_uint64()
        try:
            device.api.CreateComputePipelines(
                device.handle, self._cache, 1, ctypes.byref(info), None, ctypes.byref(made)
            )
        except api.VulkanFailed as error:
            raise CompileFailed(f"the driver does not compile {template.source[:200]}: {error.message}") from error
        finally:
            device.api.DestroyShaderModule(device.handle, module, None)
        return Pipeline(made, ctypes.c_uint64(layout), descriptors, texels, arguments)

    def _layout(self, bindings: tuple[bool, ...], pushed: int) -> tuple[int, int]:
        """The layout of pipelines with these descriptors and bytes of push constants, and that of the descriptors.

        Descriptors are of texels, or of memory as it is.
        """
        found = self._layouts.get((bindings, pushed))
        if found is None:
            found = self._layouts[bindings, pushed] = self._new_layout(bindings, pushed)
        return found

    def _new_layout(self, bindings: tuple[bool, ...], pushed: int) -> tuple[int, int]:
        fields: dict[str, Any] = {}
        descriptors, stage = 0, flags("SHADER_STAGE_COMPUTE")
        if bindings:
            kinds = [constant(f"DESCRIPTOR_TYPE_{each}") for each in ("STORAGE_BUFFER", "UNIFORM_TEXEL_BUFFER")]
            common = {"descriptorCount": 1, "stageFlags": stage}
            items = [
                struct("DescriptorSetLayoutBinding", binding=at, descriptorType=kinds[texels], **common)
                for at, texels in enumerate(bindings)
            ]
            listed = api.structs("DescriptorSetLayoutBinding", items)
            descriptors = self._device.made("DescriptorSetLayout", bindingCount=len(bindings), pBindings=listed)
            fields |= {"setLayoutCount": 1, "pSetLayouts": api.array("u64", [descriptors])}
        if pushed:
            ranges = struct("PushConstantRange", stageFlags=stage, size=pushed)
            fields |= {"pushConstantRangeCount": 1, "pPushConstantRanges": ranges}
        return self._device.made("PipelineLayout", **fields), descriptors

    def save(self) -> None:
        """Keep what the driver compiled since the last time."""
        if self._store is None or not self._unsaved:
            return
        with self._lock:
            self._unsaved = 0
            size, device = ctypes.c_size_t(), self._device
            device.api.GetPipelineCacheData(device.handle, self._cache, ctypes.byref(size), None)
            data = ctypes.create_string_buffer(size.value)
            device.api.GetPipelineCacheData(device.handle, self._cache, ctypes.byref(size), ctypes.byref(data))
            self._store.put(self._key, data.raw[: size.value])


def _demanded(template: Template, profile: Profile) -> dict[str, Any]:
    """The size of subgroups, where a kernel relies on it."""
    relies = template.by_group and not template.invocations and (profile.subgroup_shuffle or profile.subgroup_broadcast)
    if not relies or not profile.subgroup_sized:
        return {}
    kind = "PipelineShaderStageRequiredSubgroupSizeCreateInfo"
    return {"pNext": struct(kind, requiredSubgroupSize=profile.subgroup)}
