"""What tests of the runtime share."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "cache")
    assert opened is not None
    return opened
