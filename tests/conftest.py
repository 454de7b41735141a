"""What every test runs under: a cache of its run, torch kept off instructions that end some machines' runs, and one
more target than Assay has, that of docs/writing-a-target.md.

A test that takes `target` or `target_name` is run on every target that is registered, but for those in `APART`.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from abacus_package import install

_FOLDER = tempfile.TemporaryDirectory(prefix="assay-tests-")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers share the cache of the process that started them
    os.environ["ASSAY_CACHE_DIR"] = str(Path(_FOLDER.name) / "cache")
os.environ["ASSAY_TARGET"] = "reference"  # unless a test names another: the oracle is what others are measured by
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; tests interrupt what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("LP_NUM_THREADS", "0")  # lavapipe: tiny dispatches are quicker without threads
_PACKAGES = Path(_FOLDER.name) / "packages"
_PACKAGES.mkdir()
install(_PACKAGES)
sys.path.append(str(_PACKAGES))

# After the environment is set.
from assay.limits import DEFAULT  # noqa: E402
from assay.runtime.targets import make_target, probe_target, target_names  # noqa: E402
from assay.targets.base import Probe, Target  # noqa: E402

_probe = cache(probe_target)
APART = {
    "ttnn": "each of its programs is put to a library in another process, and its numbers are those of bf16: it has "
    "suites of its own, tests/targets/test_ttnn_*.py"
}
"""Targets that the shared suites leave out, and why."""


@pytest.fixture(params=[name for name in target_names() if name not in APART])
def target_name(request: pytest.FixtureRequest) -> str:
    """The name of a registered target. Those that are not here are skipped, with what their probe says."""
    name: str = request.param
    probe: Probe = _probe(name)
    if not probe.present:
        pytest.skip(f"the target {name} is not here: {probe.reason}")
    return name


@pytest.fixture
def host_target_name(target_name: str) -> str:
    """The name of a registered target that works in host memory, which is what budgets of memory count."""
    if make_target(target_name, "exact", DEFAULT).traits.own_memory:
        pytest.skip(f"the target {target_name} has memory of its own")
    return target_name


@pytest.fixture
def target(target_name: str) -> Target:
    """A registered target that is here, in `exact` mode."""
    return make_target(target_name, "exact", DEFAULT)
