"""What tests of the native target share."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from assay.targets.cpu.toolchain import shared_toolchain


@pytest.fixture
def vector_unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are compiled as for a lesser machine, with the compiler's options that are the parameter."""
    if request.param and platform.machine() != "x86_64":
        pytest.skip("widths are chosen by options of compilers for x86-64")
    monkeypatch.setenv("ASSAY_CFLAGS", request.param)
    shared_toolchain.cache_clear()
    yield
    shared_toolchain.cache_clear()
