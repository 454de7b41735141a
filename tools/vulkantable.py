"""Write the part of Vulkan's registry that the target uses, from vk.xml; `--check` only says if it is up to date.

The registry comes with the headers (Debian: libvulkan-dev). The table holds what the names below need, nothing else.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

REGISTRY = Path("/usr/share/vulkan/registry/vk.xml")
PATH = Path(__file__).parent.parent / "src" / "assay" / "targets" / "vulkan" / "table.py"
FUNCTIONS = """
    vkEnumerateInstanceVersion vkEnumerateInstanceLayerProperties vkEnumerateInstanceExtensionProperties
    vkCreateInstance vkDestroyInstance vkCreateDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT
    vkEnumeratePhysicalDevices vkGetPhysicalDeviceProperties2
    vkGetPhysicalDeviceFeatures2 vkGetPhysicalDeviceMemoryProperties vkGetPhysicalDeviceQueueFamilyProperties
    vkCreateDevice vkDestroyDevice vkGetDeviceQueue vkDeviceWaitIdle
    vkAllocateMemory vkFreeMemory vkMapMemory vkCreateBuffer vkDestroyBuffer vkGetBufferMemoryRequirements
    vkBindBufferMemory vkGetBufferDeviceAddress vkCreateBufferView vkDestroyBufferView
    vkCreateShaderModule vkDestroyShaderModule vkCreatePipelineLayout vkDestroyPipelineLayout
    vkCreateComputePipelines vkDestroyPipeline vkCreatePipelineCache vkDestroyPipelineCache vkGetPipelineCacheData
    vkCreateDescriptorSetLayout vkDestroyDescriptorSetLayout vkCreateDescriptorPool vkDestroyDescriptorPool
    vkAllocateDescriptorSets vkUpdateDescriptorSets
    vkCreateCommandPool vkDestroyCommandPool vkAllocateCommandBuffers vkFreeCommandBuffers
    vkBeginCommandBuffer vkEndCommandBuffer vkCmdBindPipeline vkCmdBindDescriptorSets vkCmdPushConstants
    vkCmdDispatch vkCmdPipelineBarrier vkCmdCopyBuffer vkCmdFillBuffer vkCmdResetQueryPool vkCmdWriteTimestamp
    vkCreateQueryPool vkDestroyQueryPool vkGetQueryPoolResults
    vkQueueSubmit vkCreateSemaphore vkDestroySemaphore vkWaitSemaphores vkGetSemaphoreCounterValue
"""
STRUCTS = """
    VkApplicationInfo VkInstanceCreateInfo VkLayerProperties VkExtensionProperties VkDebugUtilsMessengerCreateInfoEXT
    VkDebugUtilsMessengerCallbackDataEXT VkPhysicalDeviceProperties2 VkPhysicalDeviceVulkan11Properties
    VkPhysicalDeviceVulkan12Properties VkPhysicalDeviceVulkan13Properties VkPhysicalDeviceFeatures2
    VkPhysicalDeviceVulkan11Features VkPhysicalDeviceVulkan12Features VkPhysicalDeviceVulkan13Features
    VkPhysicalDeviceMemoryProperties VkQueueFamilyProperties VkDeviceQueueCreateInfo VkDeviceCreateInfo
    VkMemoryAllocateInfo VkMemoryAllocateFlagsInfo VkMemoryRequirements VkBufferCreateInfo VkBufferDeviceAddressInfo
    VkBufferViewCreateInfo
    VkShaderModuleCreateInfo VkPipelineShaderStageCreateInfo VkPipelineShaderStageRequiredSubgroupSizeCreateInfo
    VkComputePipelineCreateInfo VkPipelineLayoutCreateInfo VkPushConstantRange VkPipelineCacheCreateInfo
    VkDescriptorSetLayoutCreateInfo VkDescriptorSetLayoutBinding VkDescriptorPoolCreateInfo VkDescriptorPoolSize
    VkDescriptorSetAllocateInfo VkWriteDescriptorSet VkDescriptorBufferInfo
    VkCommandPoolCreateInfo VkCommandBufferAllocateInfo VkCommandBufferBeginInfo VkMemoryBarrier VkBufferCopy
    VkSubmitInfo VkTimelineSemaphoreSubmitInfo VkSemaphoreCreateInfo VkSemaphoreTypeCreateInfo VkSemaphoreWaitInfo
    VkQueryPoolCreateInfo
"""
CONSTANTS = """
    VK_SUCCESS VK_NOT_READY VK_TIMEOUT VK_INCOMPLETE VK_ERROR_OUT_OF_HOST_MEMORY VK_ERROR_OUT_OF_DEVICE_MEMORY
    VK_ERROR_INITIALIZATION_FAILED VK_ERROR_DEVICE_LOST VK_ERROR_MEMORY_MAP_FAILED VK_ERROR_LAYER_NOT_PRESENT
    VK_ERROR_EXTENSION_NOT_PRESENT VK_ERROR_FEATURE_NOT_PRESENT VK_ERROR_INCOMPATIBLE_DRIVER
    VK_ERROR_TOO_MANY_OBJECTS VK_ERROR_OUT_OF_POOL_MEMORY VK_ERROR_FRAGMENTED_POOL VK_ERROR_INVALID_EXTERNAL_HANDLE
    VK_ERROR_INVALID_SHADER_NV VK_ERROR_UNKNOWN
    VK_PHYSICAL_DEVICE_TYPE_OTHER VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
    VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU VK_PHYSICAL_DEVICE_TYPE_CPU
    VK_QUEUE_COMPUTE_BIT VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
    VK_MEMORY_PROPERTY_HOST_COHERENT_BIT VK_MEMORY_PROPERTY_HOST_CACHED_BIT VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT VK_BUFFER_USAGE_TRANSFER_DST_BIT VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT VK_BUFFER_USAGE_UNIFORM_TEXEL_BUFFER_BIT VK_SHADER_STAGE_COMPUTE_BIT
    VK_DESCRIPTOR_TYPE_STORAGE_BUFFER VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER
    VK_FORMAT_R32_UINT VK_FORMAT_R32G32B32A32_UINT
    VK_PIPELINE_BIND_POINT_COMPUTE VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
    VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT VK_PIPELINE_STAGE_TRANSFER_BIT VK_PIPELINE_STAGE_HOST_BIT
    VK_ACCESS_SHADER_READ_BIT VK_ACCESS_SHADER_WRITE_BIT VK_ACCESS_TRANSFER_READ_BIT VK_ACCESS_TRANSFER_WRITE_BIT
    VK_ACCESS_HOST_READ_BIT VK_ACCESS_HOST_WRITE_BIT
    VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
    VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT VK_SEMAPHORE_TYPE_TIMELINE
    VK_QUERY_TYPE_TIMESTAMP VK_QUERY_RESULT_64_BIT VK_QUERY_RESULT_WAIT_BIT
    VK_SUBGROUP_FEATURE_BALLOT_BIT VK_SUBGROUP_FEATURE_SHUFFLE_BIT
    VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
    VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
    VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
    VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
"""
PLAIN = {
    "uint8_t": "u8",
    "uint32_t": "u32",
    "int32_t": "i32",
    "uint64_t": "u64",
    "size_t": "size",
    "float": "f32",
    "char": "char",
    "VkBool32": "u32",
    "VkFlags": "u32",
    "VkFlags64": "u64",
    "VkDeviceSize": "u64",
    "VkDeviceAddress": "u64",
    "void": "void",
}
WIDTH = 116
HEAD = '''\
"""What the target uses of Vulkan's registry, made from vk.xml by `python tools/vulkantable.py`; do not edit.

Kinds are u8 … u64, i32, f32, size, char, ptr, another struct, or one of these with [count]. Structs are given with
their sType, or -, and follow those that they hold; functions with what they give, then what they take.
"""

from __future__ import annotations

'''


class Registry:
    """vk.xml, as far as names lead into it."""

    def __init__(self, path: Path) -> None:
        root = ElementTree.parse(path).getroot()
        self._types = {_name(each): each for each in root.iterfind("types/type") if _ours(each)}
        self._commands: dict[str, ElementTree.Element] = {}
        for command in root.iterfind("commands/command"):
            if _ours(command):
                self._commands[command.get("name") or command.findtext("proto/name") or ""] = command
        self.numbers = dict(_numbers(root))

    def struct(self, name: str) -> tuple[int | None, list[tuple[str, str]]]:
        """A struct's sType, if it has one, and its members with their kinds."""
        fields: list[tuple[str, str]] = []
        tag: int | None = None
        for member in self._resolved(name).iterfind("member"):
            if not _ours(member):
                continue
            field = member.findtext("name") or ""
            if field == "sType" and member.get("values"):
                tag = self.numbers[member.get("values") or ""]
            fields.append((field, self._kind(member)))
        return tag, fields

    def function(self, name: str) -> tuple[str, list[str]]:
        """What a function gives and takes."""
        command = self._commands[name]
        while command.get("alias"):
            command = self._commands[command.get("alias") or ""]
        proto = command.find("proto")
        assert proto is not None
        return self._kind(proto), [self._kind(param) for param in command.iterfind("param") if _ours(param)]

    def within(self, names: Iterable[str]) -> list[str]:
        """The structs of these names and all that they hold, each after what it holds."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            for _, kind in self.struct(name)[1]:
                inner = kind.partition("[")[0]
                if inner.startswith("Vk"):
                    visit(inner)
            found[name] = None

        for name in names:
            visit(name)
        return list(found)

    def _resolved(self, name: str) -> ElementTree.Element:
        found = self._types[name]
        while found.get("alias"):
            found = self._types[found.get("alias") or ""]
        return found

    def _kind(self, member: ElementTree.Element) -> str:
        """How a member, a parameter or a result lies in memory."""
        text = (member.text or "") + "".join(
            ("" if part.tag == "comment" else "".join(part.itertext())) + (part.tail or "") for part in member
        )
        kind = self._scalar(member.findtext("type") or "", pointer="*" in text)
        sizes = re.findall(r"\[(\w+)\]", text)
        count = 1
        for size in sizes:
            count *= int(size) if size.isdigit() else self.numbers[size]
        return f"{kind}[{count}]" if sizes else kind

    def _scalar(self, name: str, *, pointer: bool) -> str:
        if pointer:
            return "ptr"
        if name in PLAIN:
            return PLAIN[name]
        found = self._resolved(name)
        category = found.get("category")
        if category == "handle":
            return "u64" if "NON_DISPATCHABLE" in (found.findtext("type") or "") else "ptr"
        if category == "bitmask":
            return PLAIN[found.findtext("type") or "VkFlags"]
        return {"enum": "i32", "funcpointer": "ptr", "struct": name}[category or ""]


def _ours(element: ElementTree.Element) -> bool:
    return "vulkan" in (element.get("api") or "vulkan").split(",")


def _name(element: ElementTree.Element) -> str:
    return element.get("name") or element.findtext("name") or ""


def _numbers(root: ElementTree.Element) -> Iterator[tuple[str, int]]:
    """Every named number, of enums and of extensions."""
    for each in root.iterfind("enums/enum"):
        yield from _number(each, 0)
    for extension in [*root.iterfind("feature"), *root.iterfind("extensions/extension")]:
        for each in extension.iterfind("require/enum"):
            yield from _number(each, int(extension.get("number") or 0) if extension.tag == "extension" else 0)


def _number(each: ElementTree.Element, extension: int) -> Iterator[tuple[str, int]]:
    name = each.get("name") or ""
    if each.get("bitpos"):
        yield name, 1 << int(each.get("bitpos") or 0)
    elif each.get("offset"):
        number = int(each.get("extnumber") or extension)
        value = 1_000_000_000 + (number - 1) * 1000 + int(each.get("offset") or 0)
        yield name, -value if each.get("dir") == "-" else value
    elif re.fullmatch(r"-?(\d+|0x[0-9a-fA-F]+)", each.get("value") or ""):
        yield name, int(each.get("value") or "0", 0)


def table(registry: Registry) -> str:
    """The text of the table."""
    constants = [f"{name} {registry.numbers[name]}" for name in CONSTANTS.split()]
    structs: list[str] = []
    for name in registry.within(STRUCTS.split()):
        tag, fields = registry.struct(name)
        structs.append(f"{name} {'-' if tag is None else tag} {' '.join(f'{field}:{kind}' for field, kind in fields)}")
    functions = [
        f"{name} {' '.join((result, *kinds))}"
        for name in FUNCTIONS.split()
        for result, kinds in [registry.function(name)]
    ]
    return HEAD + "\n".join(
        [_block("CONSTANTS", constants), _block("STRUCTS", structs), _block("FUNCTIONS", functions)]
    )


def _block(name: str, rows: list[str]) -> str:
    """Rows as one string; those that are too long go on in lines that are indented."""
    folded = [
        line for row in rows for line in textwrap.wrap(row, WIDTH, subsequent_indent="    ", break_long_words=False)
    ]
    return "\n".join([f'{name} = """', *folded, '"""', ""])


def main() -> None:
    """Write the table, or check it."""
    if not REGISTRY.exists():
        sys.exit(f"{REGISTRY} is missing: apt-get install libvulkan-dev")
    made = table(Registry(REGISTRY))
    if "--check" not in sys.argv:
        PATH.write_text(made)
    elif PATH.read_text() != made:
        sys.exit("the table is not what vk.xml says: run python tools/vulkantable.py")


if __name__ == "__main__":
    main()
