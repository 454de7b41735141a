"""The rows of the table of peers' deviations are true: on its witness a peer deviates, as the row says, and Assay does
what the standard says."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx_witnesses import REFUSED, WITNESSES, Witness

from assay.errors import AssayError
from assay.evidence.fuzz.onnx_deviations import DEVIATIONS, ORT, Deviation, PeerFault
from assay.evidence.fuzz.onnx_grow import Made, built
from assay.evidence.peers import load_peer, open_onnxruntime, run_onnxruntime

CASES = [(row, op) for row in DEVIATIONS for op in row.ops]


def named(case: Any) -> str:
    return f"{case[1]}: {case[0].reason}"


def witness_of(row: Deviation, op: str) -> Witness:
    found = WITNESSES[row.reason]
    return found[op] if isinstance(found, dict) else found


def model_of(op: str, witness: Witness) -> tuple[bytes, dict[str, Any], list[str]]:
    """The model of a witness, what it is fed and the names of its results."""
    given = {f"x{i}": np.asarray(value) for i, value in enumerate(witness.inputs) if value is not None}
    names = tuple("" if value is None else f"x{i}" for i, value in enumerate(witness.inputs))
    outputs = tuple(f"y{i}" for i in range(witness.results))
    fixed = {f"x{i}": given.pop(f"x{i}") for i in witness.fixed}
    model = built([Made(op, names, outputs, witness.attrs)], given, fixed, {}, witness.opset, outputs)
    return model.SerializeToString(), given, list(outputs)


def said_by(peer: str, op: str, witness: Witness) -> Any:
    """Results, or REFUSED."""
    model, feeds, outputs = model_of(op, witness)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if peer == ORT:
                found = run_onnxruntime(open_onnxruntime(model, optimized=False), feeds)
            else:
                found = load_peer(peer, model).run(feeds)
    except Exception:
        return REFUSED
    return [found[name] for name in outputs]


def said_by_assay(target: str, op: str, witness: Witness) -> Any:
    from assay.evidence.engines import engine

    model, feeds, outputs = model_of(op, witness)
    try:
        found = engine(target).load(model).run(feeds)
    except AssayError:
        return REFUSED
    return [found[name] for name in outputs]


def standard(op: str, witness: Witness) -> Any:
    if isinstance(witness.expected, str):
        return said_by(witness.expected, op, witness)
    assert witness.because
    return witness.expected


def alike(first: Any, second: Any) -> bool:
    """Whether two answers are the same but for rounding."""
    if first is REFUSED or second is REFUSED:
        return first is second
    if isinstance(first, list):
        pairs: Sequence[tuple[Any, Any]] = list(zip(first, second, strict=False))
        return len(first) == len(second) and all(alike(*pair) for pair in pairs)
    return first.shape == second.shape and np.allclose(first, second, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_row_has_a_witness_and_every_witness_a_row() -> None:
    assert len({row.reason for row in DEVIATIONS}) == len(DEVIATIONS)
    assert WITNESSES.keys() == {row.reason for row in DEVIATIONS}


@pytest.mark.parametrize("case", CASES, ids=named)
def test_rows_apply_to_their_witnesses(case: tuple[Deviation, str]) -> None:
    row, op = case
    witness = witness_of(row, op)
    assert row.applies(witness.attrs, [None if x is None else np.asarray(x) for x in witness.inputs])


@pytest.mark.parametrize("case", CASES, ids=named)
def test_peers_deviate_as_their_rows_say(case: tuple[Deviation, str]) -> None:
    row, op = case
    witness = witness_of(row, op)
    right = standard(op, witness)
    for peer in row.peers:
        said = said_by(peer, op, witness)
        assert not alike(said, right), said
        assert row.fault is PeerFault.EITHER or (said is REFUSED) == (row.fault is PeerFault.REFUSES), said


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES, ids=named)
def test_assay_does_what_the_standard_says(case: tuple[Deviation, str], target: str) -> None:
    row, op = case
    witness = witness_of(row, op)
    right, mine = standard(op, witness), said_by_assay(target, op, witness)
    assert alike(mine, right), (mine, right)
