"""Where ONNX Runtime keeps memory: devices and allocators. Assay has the CPU alone, and no allocators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.errors import Unsupported
from assay.runtime.ort.enums import OrtAllocatorType, OrtDeviceMemoryType, OrtDeviceVendorId, OrtMemType


def check_device(device_type: str, device_id: int = 0) -> None:
    """Unsupported for anything but the CPU."""
    if device_type.lower() != "cpu" or device_id != 0:
        raise Unsupported(
            f"there is no device '{device_type}:{device_id}' here", hint="values lie in the CPU's memory: use 'cpu'"
        )


class OrtDevice:
    """The CPU."""

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of that name."""
        check_device(ort_device_name, device_id)
        return OrtDevice()

    def device_type(self) -> int:
        """The number of the CPU among kinds of devices."""
        return 0

    def device_id(self) -> int:
        """Which of the devices of its kind."""
        return 0

    def device_vendor_id(self) -> int:
        """Nobody in particular."""
        return int(OrtDeviceVendorId.NONE)

    def device_mem_type(self) -> int:
        """The ordinary memory."""
        return int(OrtDeviceMemoryType.DEFAULT)


class OrtMemoryInfo:
    """Names a kind of memory."""

    def __init__(
        self,
        name: str = "Cpu",
        allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
        device_id: int = 0,
        mem_type: OrtMemType = OrtMemType.DEFAULT,
    ) -> None:
        self.name, self.allocator_type, self.device_id, self.mem_type = name, allocator_type, device_id, mem_type
        self.device_mem_type, self.device_vendor_id = OrtDeviceMemoryType.DEFAULT, int(OrtDeviceVendorId.NONE)

    @staticmethod
    def create_v2(
        name: str,
        device_type: int = 0,
        vendor_id: int = 0,
        device_id: int = 0,
        device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT,
        alignment: int = 0,
        allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    ) -> OrtMemoryInfo:
        """The same, with the device's kind and maker told."""
        made = OrtMemoryInfo(name, allocator_type, device_id)
        made.device_mem_type, made.device_vendor_id = device_mem_type, vendor_id
        return made


_ARENA = {
    "max_mem": 0,
    "arena_extend_strategy": -1,
    "initial_chunk_size_bytes": -1,
    "max_dead_bytes_per_chunk": -1,
    "initial_growth_chunk_size_bytes": -1,
    "max_power_of_two_extend_bytes": -1,
}


class OrtArenaCfg:
    """Settings of an arena, kept and not used: four numbers in order, or a dictionary."""

    def __init__(self, *given: Any) -> None:
        named = given[0] if len(given) == 1 else dict(zip(_ARENA, given, strict=False))
        for key, value in {**_ARENA, **named}.items():
            if key not in _ARENA:
                raise Unsupported(f"an arena has no setting '{key}'", hint=f"there is {', '.join(_ARENA)}")
            setattr(self, key, int(value))


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None) -> None:
    """Does nothing: programs plan their memory themselves."""


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None = None
) -> None:
    """Does nothing: programs plan their memory themselves."""
