"""What tests of the Vulkan target share. Without a device they are skipped, with the reason that the probe gives."""

from __future__ import annotations

import pytest

from assay.errors import AssayError
from assay.targets.vulkan.device import VulkanDevice, open_device
from assay.targets.vulkan.profile import RESTRICT


@pytest.fixture
def device() -> VulkanDevice:
    """The device that the environment chooses."""
    try:
        return open_device()
    except AssayError as error:
        pytest.skip(f"{error.message}; {error.hint}")


@pytest.fixture
def restricted(request: pytest.FixtureRequest, device: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> VulkanDevice:
    """The device without what the parameter takes away."""
    monkeypatch.setenv(RESTRICT, request.param)
    return open_device()
