"""Vulkan through ctypes: structs and functions as the registry has them (`table.py`), errors as exceptions."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from assay.errors import OutOfMemory, RunFailed
from assay.targets.vulkan import table

LIBRARY = "ASSAY_VULKAN_LIBRARY"
"""The variable that names the loader where it is not found by its usual names."""
_USUAL = ("libvulkan.so.1", "libvulkan.1.dylib", "libMoltenVK.dylib")
_KINDS: dict[str, Any] = {
    "u8": ctypes.c_uint8,
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "size": ctypes.c_size_t,
    "char": ctypes.c_char,
    "ptr": ctypes.c_void_p,
    "void": None,
}


def _rows(text: str) -> list[list[str]]:
    """The rows of a table; a line that is indented goes on with the one before it."""
    return [row.split() for row in text.strip().replace("\n    ", " ").splitlines()]


def _structs() -> tuple[dict[str, type[ctypes.Structure]], dict[str, int]]:
    made: dict[str, type[ctypes.Structure]] = {}
    tags: dict[str, int] = {}

    def kind(text: str) -> Any:
        name, _, count = text.rstrip("]").partition("[")
        single = _KINDS.get(name) or made[name]
        return single * int(count) if count else single

    for name, tag, *fields in _rows(table.STRUCTS):
        pairs = [(field, kind(text)) for field, text in (each.split(":") for each in fields)]
        made[name] = type(name, (ctypes.Structure,), {"_fields_": pairs})
        if tag != "-":
            tags[name] = int(tag)
    return made, tags


STRUCTS, _TAGS = _structs()
CONSTANTS: Mapping[str, int] = {name: int(number) for name, number in _rows(table.CONSTANTS)}
_SIGNATURES = {name: (result, kinds) for name, result, *kinds in _rows(table.FUNCTIONS)}
_RESULTS = {number: name for name, number in CONSTANTS.items() if name.startswith(("VK_ERROR", "VK_SUCCESS"))}
_NO_MEMORY = {CONSTANTS["VK_ERROR_OUT_OF_DEVICE_MEMORY"], CONSTANTS["VK_ERROR_OUT_OF_HOST_MEMORY"]}


class VulkanFailed(RunFailed):
    """A call of Vulkan's that failed. `result` is what it gave."""

    def __init__(self, function: str, result: int, hint: str = "") -> None:
        super().__init__(f"{function} gave {_RESULTS.get(result, result)}", hint=hint)
        self.result = result


@cache
def flags(*names: str) -> int:
    """Bits by their names, without VK_ and _BIT."""
    return sum(CONSTANTS[f"VK_{name}_BIT"] for name in names)


@cache
def constant(name: str) -> int:
    """A number by its name, without VK_."""
    return CONSTANTS[f"VK_{name}"]


def struct(name: str, **fields: Any) -> Any:
    """A struct by its name without Vk, its sType set. Structs and arrays for pointers are kept alive by it."""
    full = f"Vk{name}"
    made: Any = STRUCTS[full]()
    if full in _TAGS:
        made.sType = _TAGS[full]
    kept: list[Any] = []
    for field, value in fields.items():
        if _is_pointed_at(field, value):
            kept.append(value)
            value = ctypes.addressof(value)
        elif isinstance(value, bytes):
            kept.append(ctypes.create_string_buffer(value))
            value = ctypes.addressof(kept[-1])
        setattr(made, field, value)
    made.kept = kept
    return made


def _is_pointed_at(field: str, value: Any) -> bool:
    return field[:1] == "p" and field[1:2].isupper() and isinstance(value, ctypes.Structure | ctypes.Array)


def structs(name: str, items: Sequence[Any]) -> Any:
    """An array of structs for a pointer; it keeps what they point to."""
    made: Any = (STRUCTS[f"Vk{name}"] * max(len(items), 1))(*items)
    made.kept = list(items)
    return made


def array(kind: str, items: Sequence[int | float]) -> Any:
    """An array of numbers for a pointer."""
    return (_KINDS[kind] * max(len(items), 1))(*items)


def names(items: Sequence[str]) -> Any:
    """An array of strings for a pointer."""
    kept = [each.encode() for each in items]
    made: Any = (ctypes.c_char_p * max(len(kept), 1))(*kept)
    made.kept = kept
    return made


class Api:
    """The functions of the loader, of an instance or of a device, by their names without vk.

    A function with a result raises VulkanFailed if that says so, OutOfMemory if memory is the reason.
    """

    def __init__(self, find: Callable[[str], int | None]) -> None:
        """`find` gives the address of a function."""
        self._find = find
        self.lost = False
        """Whether a function said that the device was lost: nothing works on it any more."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = self._bound(f"vk{name}")
        setattr(self, name, found)
        return found

    def _bound(self, name: str) -> Callable[..., Any]:
        result, kinds = _SIGNATURES[name]
        function = ctypes.CFUNCTYPE(_KINDS[result], *(_KINDS[kind] for kind in kinds))(self.address(name))
        return self.checked(name, function) if result == "i32" else function

    def address(self, name: str) -> int:
        """Where a function is; AttributeError if the driver has none."""
        place = self._find(name)
        if not place:
            raise AttributeError(f"the driver has no {name}")
        return place

    def checked(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        """The function with its results as errors."""

        def call(*arguments: Any) -> int:
            result = function(*arguments)
            if result < 0:
                self._fail(name, result)
            return result

        return call

    def _fail(self, name: str, result: int) -> None:
        if result in _NO_MEMORY:
            raise OutOfMemory(f"there is not enough memory on the Vulkan device ({name})")
        if result == CONSTANTS["VK_ERROR_DEVICE_LOST"]:
            self.lost = True
            raise VulkanFailed(name, result, "the device was reset or removed: load the model again")
        raise VulkanFailed(name, result)


class RawApi:
    """Functions without a result whose arguments are taken as they come, in half the time.

    Handles and other arguments of 64 bits must be values of ctypes, such as `c_uint64(handle)`; ints have 32 bits.
    """

    def __init__(self, typed: Api) -> None:
        self._address = typed.address

    def __getattr__(self, name: str) -> Callable[..., None]:
        assert _SIGNATURES[f"vk{name}"][0] == "void"
        found = ctypes.CFUNCTYPE(None)(self._address(f"vk{name}"))
        setattr(self, name, found)
        return found


@cache
def loader_name() -> str:
    """What Vulkan's loader is looked for as."""
    return os.environ.get(LIBRARY) or _USUAL[0]


def loader() -> ctypes.CDLL | None:
    """Vulkan's loader; None if there is none."""
    named = os.environ.get(LIBRARY)
    for name in (named,) if named else (*_USUAL, ctypes.util.find_library("vulkan")):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


def global_api(library: ctypes.CDLL) -> Api:
    """The functions that need no instance."""
    return instance_api(library, None)


def instance_api(library: ctypes.CDLL, instance: int | None) -> Api:
    """The functions of an instance."""
    find = library.vkGetInstanceProcAddr
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    return Api(lambda name: find(instance, name.encode()))


def device_api(library: ctypes.CDLL, device: int) -> Api:
    """The functions of a device, without the loader between."""
    find = library.vkGetDeviceProcAddr
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
    return Api(lambda name: find(device, name.encode()))


def listed(function: Callable[..., Any], kind: str, *before: Any) -> list[Any]:
    """All that a function lists which first tells how many there are; `kind` is that of an item."""
    count = ctypes.c_uint32()
    function(*before, ctypes.byref(count), None)
    single = _KINDS.get(kind) or STRUCTS[f"Vk{kind}"]
    items = (single * count.value)()
    function(*before, ctypes.byref(count), ctypes.byref(items) if count.value else None)
    return list(items)[: count.value]


def created(function: Callable[..., Any], device: Any, info: Any, kind: str = "u64") -> int:
    """The handle that a function makes on a device."""
    handle = _KINDS[kind]()
    function(device, ctypes.byref(info), None, ctypes.byref(handle))
    return handle.value or 0
