"""What tests of targets share."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest

from assay.targets.cpu.toolchain import shared_toolchain
from assay.targets.ttnn.library import Library, open_library


@pytest.fixture
def vector_unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are compiled as for a lesser machine, with the compiler's options that are the parameter."""
    if request.param and platform.machine() != "x86_64":
        pytest.skip("widths are chosen by options of compilers for x86-64")
    monkeypatch.setenv("ASSAY_CFLAGS", request.param)
    shared_toolchain.cache_clear()
    yield
    shared_toolchain.cache_clear()


@pytest.fixture(scope="session")
def library() -> Library:
    """Tenstorrent's library with a stand-in for a card; without the library the test is skipped."""
    opened = open_library()
    if isinstance(opened, str):
        pytest.skip(opened)
    return opened
