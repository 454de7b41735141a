"""The table of Vulkan's registry against what the C compiler makes of the headers."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from assay.targets.vulkan.api import CONSTANTS, STRUCTS

ROOT = Path(__file__).parent.parent.parent.parent
REGISTRY = Path("/usr/share/vulkan/registry/vk.xml")
HEADER = Path("/usr/include/vulkan/vulkan.h")


@pytest.mark.skipif(not REGISTRY.exists(), reason="libvulkan-dev is not installed: make vulkan")
def test_the_table_is_what_the_registry_says() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "vulkantable.py"))
    assert tool["PATH"].read_text() == tool["table"](tool["Registry"](REGISTRY)), "run python tools/vulkantable.py"


@pytest.mark.skipif(not HEADER.exists() or shutil.which("cc") is None, reason="libvulkan-dev or cc is not installed")
def test_sizes_offsets_and_constants_are_those_of_the_headers(tmp_path: Path) -> None:
    wanted: dict[str, int] = {}
    lines = []
    for name, kind in STRUCTS.items():
        wanted[f"sizeof({name})"] = ctypes.sizeof(kind)
        for field, *_ in kind._fields_:
            wanted[f"offsetof({name}, {field})"] = getattr(kind, field).offset
            wanted[f"sizeof((({name} *)0)->{field})"] = getattr(kind, field).size
    wanted.update(CONSTANTS)
    lines = [f'  printf("%lld\\n", (long long)({text}));' for text in wanted]
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include <vulkan/vulkan.h>\nint main(void) {{\n{body}\n}}\n"
    )
    subprocess.run(["cc", "-o", tmp_path / "layout", source], check=True)
    found = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    told = dict(zip(wanted, map(int, found), strict=True))
    assert {text: number for text, number in told.items() if number != wanted[text]} == {}
