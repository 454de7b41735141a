"""What the suites look at besides results: every SPIR-V module that the Vulkan target makes must be valid.

Where `ASSAY_VULKAN_VALIDATION` is set, the validation layer must have nothing to say of any test either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from assay.targets.vulkan.instance import VALIDATION, open_instance
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.templates import Template

_SEEN: set[bytes] = set()


def on_vulkan(request: pytest.FixtureRequest) -> bool:
    """Whether a test runs on the Vulkan target."""
    return "target_name" in request.fixturenames and request.getfixturevalue("target_name") == "vulkan"


@pytest.fixture(autouse=True)
def silent_layer(request: pytest.FixtureRequest) -> Iterator[None]:
    """The validation layer, if it is turned on, finds nothing in a test on Vulkan."""
    watched = bool(os.environ.get(VALIDATION)) and on_vulkan(request)
    yield
    if watched:
        messages = open_instance().messages
        found = messages.copy()
        messages.clear()
        assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def valid_modules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules made in a test on Vulkan are given to spirv-val, if it is installed."""
    if not on_vulkan(request) or shutil.which("spirv-val") is None:
        yield
        return
    made: list[tuple[str, bytes]] = []
    build = Template.built

    def noted(template: Template, profile: Profile) -> bytes:
        code = build(template, profile)
        made.append((template.source, code))
        return code

    monkeypatch.setattr(Template, "built", noted)
    yield
    for source, code in made:
        if code not in _SEEN:
            _SEEN.add(code)
            assert not complaint(code), f"{source}: {complaint(code)}"


def complaint(code: bytes) -> str:
    """What spirv-val says of a module; empty if it is valid."""
    command = ["spirv-val", "--target-env", "vulkan1.3", "--scalar-block-layout", "-"]
    return subprocess.run(command, input=code, capture_output=True, check=False).stderr.decode()
