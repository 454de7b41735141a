"""Whether Assay's targets agree with onnxruntime and the reference evaluator on one ONNX model, feed by feed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from assay.errors import AssayError
from assay.evidence.compare.arrays import closeness, displacement, epsilon
from assay.evidence.fuzz.onnx_cases import OnnxCase, unconnected
from assay.evidence.fuzz.onnx_deviations import DECLINED, DEVIATIONS, ORT, PEERS, Deviation, PeerFault
from assay.evidence.fuzz.onnx_grow import Growth, Made, reads
from assay.evidence.reasons import summary
from assay.ir import dtypes
from assay.ir.dtypes import Array

OUTVOTED = "evaluator alone"
"""The status of a model on which onnxruntime agrees, and the reference evaluator does not."""
ILL = "ill-conditioned"
"""The status of a model on which targets or peers differ by no more than runs of the oracle that round otherwise."""
_EXACT, *_ROUNDING = "reference:precise", "reference:exact", "reference:decomposed"
"""The oracle in f64, and two ways in which it rounds: after each op, and after each of those that it consists of."""
_FLOORS = 16.0
"""An error of this many noise floors is rounding."""
_FINE = ("pass", "no peer", ILL)
_DIFFERS = ("wrong", "split")
_QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv")


Noise = Mapping[str, Array]
"""For outputs that are floats, how far rounding moves each element."""


@dataclass(frozen=True)
class Said:
    """What somebody makes of one feed: results by name, or an error. One that `declines` has no opinion."""

    results: Mapping[str, Any] | None = None
    error: Exception | None = None
    declines: bool = False


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """What became of a model on one target."""

    status: str
    message: str = ""
    feed: int = 0


def judge(
    case: OnnxCase, targets: Sequence[str], doing: Callable[[str], None] = lambda what: None
) -> dict[str, JudgedModel]:
    """The verdict for each target.

    A peer that cannot run one part of a model has an opinion on the others all the same: where something is found in
    a model of unconnected parts, and the targets make the same of each part alone, the parts' verdicts count.
    """
    said = _said(case, targets, doing)
    found = {target: _verdict(case, target, said, targets) for target in targets}
    parts = unconnected(case)
    if len(parts) == 1 or all(judged.status in (OUTVOTED, *_FINE) for judged in found.values()):
        return found
    apart = [_said(part, targets, doing) for part in parts]
    for target in targets:
        if all(_same_alone(case, feed, target, said, parts, apart) for feed in range(len(case.growths))):
            rows = [_verdict(part, target, each, targets) for part, each in zip(parts, apart, strict=True)]
            found[target] = next((row for row in rows if row.status not in (OUTVOTED, *_FINE)), rows[0])
    return found


def _said(case: OnnxCase, targets: Sequence[str], doing: Callable[[str], None]) -> dict[str, list[Said]]:
    model = case.proto().SerializeToString()
    said = {name: _asked(name, model, case, doing) for name in (*PEERS, *targets)}
    doing("")
    return said


def _same_alone(
    case: OnnxCase,
    feed: int,
    target: str,
    said: Mapping[str, Sequence[Said]],
    parts: Sequence[OnnxCase],
    apart: Sequence[Mapping[str, Sequence[Said]]],
) -> bool:
    """Whether a target makes the same of a model as of its parts: the same results, or an error somewhere."""
    whole, alone = said[target][feed], [each[target][feed] for each in apart]
    if whole.results is None or any(each.results is None for each in alone):
        return whole.results is None and any(each.results is None for each in alone)
    pairs = zip(parts, alone, strict=True)
    return not any(difference(part, each.results, whole.results, part.outputs) for part, each in pairs)


def _asked(name: str, model: bytes, case: OnnxCase, doing: Callable[[str], None]) -> list[Said]:
    from assay.evidence.engines import engine

    doing(name)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            ready = _OnnxRuntime(model) if name == ORT else engine(name).load(model)
        except Exception as error:
            return [_failed(name, error)] * len(case.feeds)
        return [_run(name, ready, feeds) for feeds in case.feeds]


class _OnnxRuntime:
    """onnxruntime without its graph optimizations."""

    def __init__(self, model: bytes) -> None:
        from assay.evidence.peers import open_onnxruntime

        self._session = open_onnxruntime(model, optimized=False)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        from assay.evidence.peers import run_onnxruntime

        return run_onnxruntime(self._session, feeds)


def _run(name: str, ready: Any, feeds: Mapping[str, Any]) -> Said:
    try:
        return Said(ready.run({key: _copied(value) for key, value in feeds.items()}))
    except Exception as error:
        return _failed(name, error)


def _copied(value: Any) -> Any:
    return cast(Array, value).copy() if isinstance(value, np.ndarray) else list(value)


def _failed(name: str, error: Exception) -> Said:
    text = f"{type(error).__name__}: {error}"
    return Said(error=error, declines=name in PEERS and any(word in text for word in DECLINED))


# --- the verdict


def deviating(case: OnnxCase, growth: Growth) -> dict[str, set[str]]:
    """For each peer why what it says of some values may not count."""
    return {peer: {row.reason for node in case.nodes for row in _rows(node, growth, peer)} for peer in PEERS}


def _rows(node: Made, growth: Growth, peer: str) -> list[Deviation]:
    return [row for row in DEVIATIONS if node.op in row.ops and peer in row.peers and _applies(row, node, growth)]


def judged_outputs(case: OnnxCase, growth: Growth) -> dict[str, list[str]]:
    """For each peer the outputs that follow from no node to which it gives another answer than the standard."""
    return {peer: _judged_outputs(case, growth, peer) for peer in PEERS}


def _judged_outputs(case: OnnxCase, growth: Growth, peer: str) -> list[str]:
    doubtful: set[str] = set()
    for node in case.nodes:
        wrong = any(row.fault is not PeerFault.REFUSES for row in _rows(node, growth, peer))
        if wrong or doubtful.intersection(reads(node, growth.values)):
            doubtful.update(node.outputs)
    return [name for name in case.outputs if name not in doubtful]


def refusal_counts(case: OnnxCase, growth: Growth, peer: str) -> bool:
    """Whether nothing that is known of a peer explains that it refuses a model: there is neither a node that it
    refuses, nor one to which it gives another answer that a later node reads."""
    read = {name for node in case.nodes for name in reads(node, growth.values)}
    for node in case.nodes:
        rows = _rows(node, growth, peer)
        if any(row.fault is not PeerFault.ANSWERS for row in rows) or (rows and read.intersection(node.outputs)):
            return False
    return True


def _applies(row: Deviation, node: Made, growth: Growth) -> bool:
    try:
        return row.applies(node.attrs, [growth.values.get(name) if name else None for name in node.inputs])
    except (AttributeError, IndexError, TypeError, ValueError):  # an input that nobody could compute
        return False


def _verdict(case: OnnxCase, target: str, said: Mapping[str, Sequence[Said]], targets: Sequence[str]) -> JudgedModel:
    checked = outvoted = noisy = False
    for feed, growth in enumerate(case.growths):
        peers = _counting(case, growth, {name: said[name][feed] for name in PEERS})
        mine = said[target][feed]
        others = [said[other][feed] for other in targets if other != target]
        found = _typed(mine) or _against_targets(case, mine, others) or _against_peers(case, mine, peers)
        if found is not None and found[0] in _DIFFERS and mine.results is not None:
            noise = noise_floors(case, feed)
            if not (_against_targets(case, mine, others, noise) or _against_peers(case, mine, peers, noise)):
                found, noisy = None, True
        if found is not None and found[0] != OUTVOTED:
            return JudgedModel(*found, feed)
        outvoted = outvoted or found is not None
        checked = checked or bool(peers)
    return JudgedModel(ILL if noisy else OUTVOTED if outvoted else "pass" if checked else "no peer")


@dataclass(frozen=True, slots=True)
class _Peer:
    """A peer's answer, the outputs for which it counts, and whether those are all."""

    said: Said
    outputs: Sequence[str]
    whole: bool


def _counting(case: OnnxCase, growth: Growth, said: Mapping[str, Said]) -> dict[str, _Peer]:
    """The peers that have an opinion. One that deviates somewhere counts for what does not follow from that, and
    nothing can be said of what it refuses without reason."""
    found: dict[str, _Peer] = {}
    for name, each in said.items():
        outputs = _judged_outputs(case, growth, name)
        whole = refusal_counts(case, growth, name) if each.error is not None else len(outputs) == len(case.outputs)
        if not each.declines and (whole or (outputs and each.error is None)):
            found[name] = _Peer(each, outputs, whole)
    return found


def _typed(mine: Said) -> tuple[str, str] | None:
    if mine.error is None or isinstance(mine.error, AssayError):
        return None
    return "untyped error", summary(mine.error)


def _against_peers(
    case: OnnxCase, mine: Said, peers: Mapping[str, _Peer], noise: Noise | None = None
) -> tuple[str, str] | None:
    raised = {name: peer.said.error for name, peer in peers.items() if peer.said.error is not None}
    able = [name for name, peer in peers.items() if peer.whole and peer.said.error is None]
    if mine.error is not None:
        return ("error", f"{summary(mine.error)}; {', '.join(able)} can") if able and ORT not in raised else None
    if len(raised) == len(peers):
        if ORT not in raised:  # the evaluator fails on much that it has not
            return None
        return "wrong", "gives a result where " + ", ".join(f"{n} says {summary(e)}" for n, e in raised.items())
    found = [_voted(case, name, mine, peers, noise) for name in case.outputs]
    return min((each for each in found if each is not None), key=lambda each: each[0] == OUTVOTED, default=None)


def _voted(
    case: OnnxCase, output: str, mine: Said, peers: Mapping[str, _Peer], noise: Noise | None
) -> tuple[str, str] | None:
    """What peers say of one output."""
    told = {
        name: difference(case, mine.results, peer.said.results, [output], noise)
        for name, peer in peers.items()
        if peer.said.results is not None and output in peer.outputs
    }
    against = "; ".join(f"{name}: {text}" for name, text in told.items() if text)
    if not against:
        return None
    if len(told) == 2 and not told[ORT]:
        return OUTVOTED, ""
    if len(told) == 2 and not all(told.values()):
        return "split", f"peers disagree, Assay agrees with one. {against}"
    return "wrong", against


def _against_targets(
    case: OnnxCase, mine: Said, others: Sequence[Said], noise: Noise | None = None
) -> tuple[str, str] | None:
    """Targets agree with each other, in refusing too."""
    for other in others:
        if (mine.error is None) != (other.error is None):
            return "wrong", f"targets: {summary(mine.error or other.error or Exception())} on one alone"
        if mine.results is not None and (text := difference(case, mine.results, other.results or {}, noise=noise)):
            return "wrong", f"targets: {text}"
    return None


def difference(
    case: OnnxCase,
    mine: Mapping[str, Any] | None,
    theirs: Mapping[str, Any],
    outputs: Sequence[str] | None = None,
    noise: Noise | None = None,
) -> str:
    """How results differ by more than rounding, of all outputs or of some; empty if they do not."""
    step = 1.0 if any(op in _QUANTISED for op in case.ops) else 0.0
    for name in case.outputs if outputs is None else outputs:
        first, second = (mine or {}).get(name), theirs.get(name)
        floor = (noise or {}).get(name, 0.0)
        allowed = _allowed(second, step) + _FLOORS * np.nan_to_num(floor, posinf=0.0)
        where = np.isfinite(floor) if isinstance(floor, np.ndarray) else None
        found = closeness(_plain(first), _plain(second), relative=0.0, absolute=allowed, where=where)
        if not found.ok:
            return f"{name}: {found}"
    return ""


def noise_floors(case: OnnxCase, feed: int) -> Noise:
    """How far rounding moves each element of the results that are floats: the farther of two ways of the oracle from
    what it computes in f64. Infinite where it decides whether there is a number at all."""
    model = case.proto().SerializeToString()
    exact, *rounded = (_asked(name, model, case, lambda what: None)[feed].results for name in (_EXACT, *_ROUNDING))
    runs = [each for each in rounded if each is not None]
    if exact is None or not runs:
        return {}
    floats = {name: value for name, value in exact.items() if _is_float(value)}
    return {name: np.max([displacement(run[name], value) for run in runs], 0) for name, value in floats.items()}


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and dtypes.of(cast(Array, value)).is_float


def _plain(value: Any) -> Any:
    return np.asarray(value) if np.isscalar(value) else value


def _allowed(value: Any, step: float) -> float:
    """What rounding may do to a tensor: a share of its largest element."""
    if not isinstance(value, np.ndarray):
        return 1e-4
    array = cast(Array, value)
    kind = dtypes.of(array)
    if not kind.is_float:
        return step if kind.is_integer else 0.0
    wide = np.abs(array.astype(np.float64))
    scale = float(wide.max(initial=1.0, where=np.isfinite(wide)))
    return max(1e3 * epsilon(kind) if kind.bits > 16 else 8 * epsilon(kind), 1e-5) * scale
