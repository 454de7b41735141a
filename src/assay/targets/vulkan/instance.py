"""The devices that are here: Vulkan's loader, an instance, and what each physical device says of itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from assay.errors import AssayError
from assay.store import digest
from assay.targets.vulkan import api
from assay.targets.vulkan.api import Api, constant, flags, struct
from assay.targets.vulkan.profile import Profile

DEVICE = "ASSAY_VULKAN_DEVICE"
"""The variable that chooses a device: its number in `assay targets`, or a part of its name."""
VALIDATION = "ASSAY_VULKAN_VALIDATION"
"""The variable that turns the validation layer on; what it says is in `Instance.messages`."""
INSTALL = (
    "install a driver and the loader: `make vulkan`, or on Debian `apt-get install mesa-vulkan-drivers libvulkan1`"
)
_VERSION = 1 << 22 | 3 << 12
_KINDS = {
    "PHYSICAL_DEVICE_TYPE_CPU": "cpu",
    "PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU": "integrated",
    "PHYSICAL_DEVICE_TYPE_DISCRETE_GPU": "discrete",
    "PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU": "virtual",
}
_ORDER = ("discrete", "integrated", "virtual", "other", "cpu")
"""Which kinds of device are chosen first."""
_MOST_ROUNDS = {"cpu": 60_000}
"""How often loops may go round, by the kind of device: in lavapipe 65,535 times, some of which go to items."""
_LAYER = "VK_LAYER_KHRONOS_validation"


class Absent(AssayError):
    """Vulkan cannot be used here. The message says what is missing, the hint how to get it."""

    stage = "probe"


@dataclass(slots=True)
class Physical:
    """A device before it is opened."""

    handle: int
    queue_family: int
    memory: Any
    """VkPhysicalDeviceMemoryProperties."""
    profile: Profile
    lacks: str
    """What it lacks that nothing works without; empty if it has all."""


@dataclass(slots=True)
class Instance:
    """An instance with its devices, the best first."""

    library: ctypes.CDLL
    handle: int
    api: Api
    devices: list[Physical] = field(default_factory=list[Physical])
    messages: list[str] = field(default_factory=list[str])
    """What the validation layer said."""
    kept: list[Any] = field(default_factory=list[Any])


@cache
def open_instance() -> Instance:
    """The one instance of this process; Absent if there is no loader, or none for this version."""
    library = api.loader()
    if library is None:
        raise Absent(f"there is no Vulkan loader ({api.loader_name()})", hint=INSTALL)
    whole = api.global_api(library)
    try:
        version = ctypes.c_uint32()
        whole.EnumerateInstanceVersion(ctypes.byref(version))
    except AttributeError:
        version = ctypes.c_uint32(1 << 22)
    if version.value < _VERSION:
        raise Absent(f"the Vulkan loader is of version {_version(version.value)}, 1.3 is needed", hint=INSTALL)
    made = _made_instance(library, whole)
    handles = api.listed(made.api.EnumeratePhysicalDevices, "ptr", made.handle)
    found = [_described(made.api, handle) for handle in handles]
    made.devices = sorted(found, key=lambda each: _ORDER.index(each.profile.kind))
    return made


def _made_instance(library: ctypes.CDLL, whole: Api) -> Instance:
    watched = bool(os.environ.get(VALIDATION))
    if watched and _LAYER not in {_text(each.layerName) for each in _layers(whole)}:
        raise Absent(
            f"{VALIDATION} is set and there is no validation layer", hint="apt-get install vulkan-validationlayers"
        )
    application = struct("ApplicationInfo", pApplicationName=b"assay", apiVersion=_VERSION)
    info = struct("InstanceCreateInfo", pApplicationInfo=application)
    messages: list[str] = []
    kept: list[Any] = []
    if watched:
        callback = _messenger(messages)
        kept.append(callback)
        layers, extensions = api.names([_LAYER]), api.names(["VK_EXT_debug_utils"])
        info = struct(
            "InstanceCreateInfo",
            pApplicationInfo=application,
            pNext=callback,
            enabledLayerCount=1,
            ppEnabledLayerNames=ctypes.addressof(layers),
            enabledExtensionCount=1,
            ppEnabledExtensionNames=ctypes.addressof(extensions),
        )
        kept += [layers, extensions]
    handle = ctypes.c_void_p()
    try:
        whole.CreateInstance(ctypes.byref(info), None, ctypes.byref(handle))
    except api.VulkanFailed as error:
        raise Absent(f"no Vulkan driver can be started: {error.message}", hint=INSTALL) from error
    made = Instance(library, handle.value or 0, api.instance_api(library, handle.value), [], messages, kept)
    if watched:
        api.created(made.api.CreateDebugUtilsMessengerEXT, made.handle, kept[0])
    return made


def _layers(whole: Api) -> list[Any]:
    return api.listed(whole.EnumerateInstanceLayerProperties, "LayerProperties")


def _messenger(messages: list[str]) -> Any:
    """What tells the layer to put its messages into a list."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)

    def note(severity: int, kinds: int, data: int, user: int) -> int:
        told = api.STRUCTS["VkDebugUtilsMessengerCallbackDataEXT"].from_address(data)
        text = ctypes.string_at(told.pMessage).decode(errors="replace") if told.pMessage else ""
        messages.append(text)
        return 0

    function = prototype(note)
    severity = "DEBUG_UTILS_MESSAGE_SEVERITY"
    made = struct(
        "DebugUtilsMessengerCreateInfoEXT",
        messageSeverity=constant(f"{severity}_WARNING_BIT_EXT") | constant(f"{severity}_ERROR_BIT_EXT"),
        messageType=constant("DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT"),
        pfnUserCallback=ctypes.cast(function, ctypes.c_void_p),
    )
    made.kept.append(function)
    return made


def _described(instance: Api, handle: int) -> Physical:
    properties = struct("PhysicalDeviceVulkan11Properties")
    newer = struct("PhysicalDeviceVulkan12Properties", pNext=properties)
    newest = struct("PhysicalDeviceVulkan13Properties", pNext=newer)
    whole = struct("PhysicalDeviceProperties2", pNext=newest)
    instance.GetPhysicalDeviceProperties2(handle, ctypes.byref(whole))
    core = whole.properties
    supported = Features.of(instance, handle)
    memory = struct("PhysicalDeviceMemoryProperties")
    instance.GetPhysicalDeviceMemoryProperties(handle, ctypes.byref(memory))
    families = api.listed(instance.GetPhysicalDeviceQueueFamilyProperties, "QueueFamilyProperties", handle)
    able = [at for at, each in enumerate(families) if each.queueFlags & flags("QUEUE_COMPUTE")]
    family = able[0] if able else -1
    limits, kind = core.limits, _kind(core.deviceType)
    name, driver = _text(core.deviceName), f"{_text(newer.driverName)} {_text(newer.driverInfo)}".strip()
    addresses = bool(supported.get("bufferDeviceAddress") and supported.get("shaderInt64"))
    old = kind == "cpu" and _version_of(driver) < 23
    ticks = families[family].timestampValidBits if able else 0
    sized = _is_sized(supported, newest, properties.subgroupSize)
    even = sized or newest.minSubgroupSize == newest.maxSubgroupSize
    operations = properties.subgroupSupportedOperations if even else 0
    profile = Profile(
        name=name,
        driver=driver,
        identity=digest(
            bytes(core.pipelineCacheUUID), name, driver, f"{core.vendorID} {core.deviceID} {core.driverVersion}"
        ),
        kind=kind,
        f64=bool(supported.get("shaderFloat64")),
        i64=bool(supported.get("shaderInt64")),
        bytes8=bool(supported.get("storageBuffer8BitAccess") and supported.get("shaderInt8")),
        bytes16=bool(supported.get("storageBuffer16BitAccess") and supported.get("shaderInt16")),
        addresses=addresses and not old,
        addresses_allowed=addresses,
        texels=old and 4 * limits.maxTexelBufferElements >= limits.maxStorageBufferRange,
        subgroup=properties.subgroupSize,
        subgroup_sized=sized,
        subgroup_shuffle=bool(operations & flags("SUBGROUP_FEATURE_SHUFFLE")),
        subgroup_broadcast=bool(operations & flags("SUBGROUP_FEATURE_BALLOT")),
        keeps_special=frozenset(
            bits for bits in (32, 64) if getattr(newer, f"shaderSignedZeroInfNanPreserveFloat{bits}")
        ),
        push_bytes=min(limits.maxPushConstantsSize, 256),
        storage_range=limits.maxStorageBufferRange,
        most_groups=limits.maxComputeWorkGroupCount[0],
        most_invocations=limits.maxComputeWorkGroupInvocations,
        most_rounds=_MOST_ROUNDS.get(kind, 1 << 31),
        shared_bytes=limits.maxComputeSharedMemorySize,
        staged=kind not in ("cpu", "integrated") or _reachable(memory) is None,
        timestamp_ns=limits.timestampPeriod if ticks else 0.0,
    )
    return Physical(handle, family, memory, profile, _lacks(core.apiVersion, able, supported))


def _is_sized(supported: Mapping[str, int], properties: Any, size: int) -> bool:
    """Whether kernels can demand subgroups of this size."""
    stages = bool(properties.requiredSubgroupSizeStages & flags("SHADER_STAGE_COMPUTE"))
    inside = properties.minSubgroupSize <= size <= properties.maxSubgroupSize
    return bool(supported.get("subgroupSizeControl")) and stages and inside


def _lacks(version: int, compute_queues: list[int], supported: Mapping[str, int]) -> str:
    if version < _VERSION:
        return f"its driver has Vulkan {_version(version)}, 1.3 is needed"
    if not compute_queues:
        return "it has no queue for computing"
    return "" if supported.get("timelineSemaphore") else "its driver has no timeline semaphores"


class Features:
    """The features of a device as structs of Vulkan's, to be asked for or to be turned on."""

    _PARTS = ("Vulkan11Features", "Vulkan12Features", "Vulkan13Features")

    def __init__(self) -> None:
        self._parts: list[Any] = []
        for name in self._PARTS:
            self._parts.append(struct(f"PhysicalDevice{name}", **({"pNext": self._parts[-1]} if self._parts else {})))
        self.whole = struct("PhysicalDeviceFeatures2", pNext=self._parts[-1])

    @classmethod
    def of(cls, instance: Api, handle: int) -> dict[str, int]:
        """What a device has."""
        asked = cls()
        instance.GetPhysicalDeviceFeatures2(handle, ctypes.byref(asked.whole))
        return {name: getattr(part, name) for part, name in asked._named()}

    def turn_on(self, names: frozenset[str]) -> None:
        """Ask for these features."""
        for part, name in self._named():
            if name in names:
                setattr(part, name, 1)

    def _named(self) -> list[tuple[Any, str]]:
        parts = [self.whole.features, *self._parts]
        return [(part, name) for part in parts for name, *_ in part._fields_ if name not in ("sType", "pNext")]


def _reachable(memory: Any) -> int | None:
    """The memory type that device and host both reach at their best; None if there is none."""
    wanted = flags("MEMORY_PROPERTY_DEVICE_LOCAL", "MEMORY_PROPERTY_HOST_VISIBLE", "MEMORY_PROPERTY_HOST_COHERENT")
    return memory_type(memory, wanted)


def memory_type(memory: Any, wanted: int, preferred: int = 0) -> int | None:
    """A memory type with all properties `wanted`, one with those `preferred` as well if there is one."""
    for bits in (wanted | preferred, wanted):
        for at in range(memory.memoryTypeCount):
            if memory.memoryTypes[at].propertyFlags & bits == bits:
                return at
    return None


def _kind(number: int) -> str:
    return next((kind for name, kind in _KINDS.items() if constant(name) == number), "other")


def _text(letters: bytes | Any) -> str:
    return bytes(letters).partition(b"\0")[0].decode(errors="replace")


def _version(number: int) -> str:
    return f"{number >> 22}.{number >> 12 & 0x3FF}"


def _version_of(driver: str) -> int:
    """The first number that follows the word Mesa; drivers of others count as new."""
    _, mesa, rest = driver.partition("Mesa ")
    digits = rest.partition(".")[0]
    return int(digits) if mesa and digits.isdigit() else 1000


def choose(devices: list[Physical], wanted: str) -> Physical:
    """The device that is wanted by number or name, else the first that has all it takes; Absent if there is none."""
    if not devices:
        raise Absent("there is a Vulkan loader, but no driver gave a device", hint=INSTALL)
    if wanted:
        found = [
            each for at, each in enumerate(devices) if wanted == str(at) or wanted.lower() in each.profile.name.lower()
        ]
        if not found:
            raise Absent(f"there is no Vulkan device '{wanted}' ({DEVICE})", hint=f"there is {_listed(devices)}")
    else:
        found = sorted(devices, key=lambda each: bool(each.lacks))
    if found[0].lacks:
        raise Absent(f"{found[0].profile.name} cannot be used: {found[0].lacks}", hint="install a newer driver")
    return found[0]


def _listed(devices: list[Physical]) -> str:
    return ", ".join(f"{at}: {each.profile.name}" for at, each in enumerate(devices))
