"""Control flow is native: nothing of it is left to the oracle, as long as sizes stay."""

from __future__ import annotations

import pytest
from suites.control_cases import CASES

from assay.limits import DEFAULT
from assay.targets.cpu import CpuTarget
from assay.targets.cpu.toolchain import find_compiler


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", CASES)
def test_loops_and_branches_are_taken_whole(name: str) -> None:
    target = CpuTarget("exact", DEFAULT)
    refused = [
        (node.op, found.reason) for node in CASES[name].lowered().nodes if not (found := target.support(node)).ok
    ]
    assert refused == []
