"""What tests of the store share."""

from __future__ import annotations

import warnings
from pathlib import Path

from assay.store import Store, StoreWarning, digest, open_store

KEY, OTHER = digest("a"), digest("b")


def entry(store: Store, key: str = KEY) -> Path:
    return store.folder / f"{key}.entry"


def refused(folder: Path, message: str) -> None:
    """Opening twice gives nothing, and one warning with a hint."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert open_store(folder) is None
        assert open_store(folder) is None
    (warning,) = caught
    assert warning.category is StoreWarning
    assert message in str(warning.message)
    assert "hint: " in str(warning.message)
