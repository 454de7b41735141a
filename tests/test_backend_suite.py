"""The official ONNX backend suite, run by its own runner: `BackendTest` takes `assay.onnx_backend` unchanged."""

from __future__ import annotations

import warnings

import onnx.backend.test

import assay
from assay.evidence.conformance import LIMITATIONS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the suite's own arithmetic overflows on purpose
    suite = onnx.backend.test.BackendTest(assay.onnx_backend, __name__)

# What cannot pass is shown as skipped; the reasons are in LIMITATIONS.
for limitation in LIMITATIONS:
    suite.exclude(f"^{limitation.pattern}_cpu$")

globals().update(suite.test_cases)


def test_nothing_else_is_left_out() -> None:
    """Every case of the suite is here, and only known limitations are skipped on the CPU."""
    tests = [(name, test) for case in suite.test_cases.values() for name, test in vars(case).items() if name.endswith("_cpu")]
    skipped = [name for name, test in tests if getattr(test, "__unittest_skip__", False)]
    assert len(tests) == 2033
    assert len(skipped) == 6
    assert all(any(limit.covers(name.removesuffix("_cpu")) for limit in LIMITATIONS) for name in skipped)
