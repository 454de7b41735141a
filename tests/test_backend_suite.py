"""The official ONNX backend suite, run by its own runner: `BackendTest` takes `assay.onnx_backend` unchanged."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import onnx.backend.test
import pytest
from onnx.backend.test.runner import Runner

import assay
from assay.evidence.conformance.run import LIMITATIONS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the suite's own arithmetic overflows on purpose
    suite = onnx.backend.test.BackendTest(cast(Any, assay.onnx_backend), __name__)

for limitation in LIMITATIONS:
    suite.exclude(f"^{limitation.pattern}_cpu$")

# Its expected output is a sequence with a tensor of rank 0 in it, of which the runner takes the length: no backend can
# pass it here (see the test below). `assay conformance`, which compares such tensors, counts it as passed.
BEYOND_THE_RUNNER = "test_loop16_seq_none"
suite.xfail(f"^{BEYOND_THE_RUNNER}_cpu$")

cases = suite.test_cases
for case in cases.values():  # the runner makes each case for CUDA too, which no target here is
    for cuda in [name for name in vars(case) if name.endswith("_cuda")]:
        delattr(case, cuda)

globals().update(cases)


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The runner writes the light models' data to disk: not at home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("models")))
        yield


def test_nothing_else_is_left_out() -> None:
    """Every case is here; only known limitations are skipped on the CPU."""
    every = {name: test for case in suite.test_cases.values() for name, test in vars(case).items()}
    tests = {name.removesuffix("_cpu"): test for name, test in every.items() if name.endswith("_cpu")}
    skipped = [name for name, test in tests.items() if getattr(test, "__unittest_skip__", False)]
    assert len(tests) == 2033
    assert len(skipped) == 6
    assert all(any(limit.covers(name) for limit in LIMITATIONS) for name in skipped)


def test_the_runner_cannot_compare_scalars_in_sequences() -> None:
    """When this fails, `BEYOND_THE_RUNNER` may pass."""
    expected = [[np.float32(0).reshape(())]]
    with pytest.raises(TypeError):
        Runner.assert_similar_outputs(expected, expected, 0, 0)
