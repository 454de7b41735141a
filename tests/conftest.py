"""What every test runs under: a cache of its run, and torch kept off instructions that end some machines' runs."""

from __future__ import annotations

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the cache of the process that started them
    _FOLDER = tempfile.TemporaryDirectory(prefix="assay-tests-")
    os.environ["ASSAY_CACHE_DIR"] = _FOLDER.name
os.environ["ASSAY_TARGET"] = "reference"  # unless a test names another: the oracle is what others are measured by
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
