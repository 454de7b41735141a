"""Whether Assay's targets agree with onnxruntime and the reference evaluator on one ONNX model, feed by feed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from assay.errors import AssayError
from assay.evidence.compare.arrays import closeness, epsilon
from assay.evidence.fuzz.onnx_cases import Case
from assay.evidence.fuzz.onnx_deviations import DECLINED, DEVIATIONS, ORT, PEERS, Deviation
from assay.evidence.fuzz.onnx_grow import Growth, Made
from assay.evidence.reasons import summary
from assay.ir import dtypes
from assay.ir.dtypes import Array

OUTVOTED = "evaluator alone"
"""The status of a model on which onnxruntime agrees, and the reference evaluator does not."""
_QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv")


@dataclass(frozen=True)
class Said:
    """What somebody makes of one feed: results by name, or an error. One that `declines` has no opinion."""

    results: Mapping[str, Any] | None = None
    error: Exception | None = None
    declines: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a model on one target."""

    status: str
    message: str = ""
    feed: int = 0


def judge(case: Case, targets: Sequence[str], doing: Callable[[str], None] = lambda what: None) -> dict[str, Judged]:
    """The verdict for each target; and how many answers of peers did not count, by reason, in `deviating`."""
    model = case.proto().SerializeToString()
    said = {name: _asked(name, model, case, doing) for name in (*PEERS, *targets)}
    doing("")
    return {target: _verdict(case, target, said, targets) for target in targets}


def _asked(name: str, model: bytes, case: Case, doing: Callable[[str], None]) -> list[Said]:
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


def deviating(case: Case, growth: Growth) -> dict[str, set[str]]:
    """For each peer why its answer does not count."""
    found: dict[str, set[str]] = {peer: set() for peer in PEERS}
    for node in case.nodes:
        for row in DEVIATIONS:
            if node.op in row.ops and _applies(row, node, growth):
                for peer in row.peers:
                    found[peer].add(row.reason)
    return found


def _applies(row: Deviation, node: Made, growth: Growth) -> bool:
    try:
        return row.applies(node.attrs, [growth.values.get(name) if name else None for name in node.inputs])
    except (AttributeError, IndexError, TypeError, ValueError):  # an input that nobody could compute
        return False


def _verdict(case: Case, target: str, said: Mapping[str, Sequence[Said]], targets: Sequence[str]) -> Judged:
    checked = outvoted = False
    for feed, growth in enumerate(case.growths):
        out = deviating(case, growth)
        peers = {name: said[name][feed] for name in PEERS if not out[name] and not said[name][feed].declines}
        mine = said[target][feed]
        others = [said[other][feed] for other in targets if other != target]
        found = _typed(mine) or _against_targets(case, mine, others) or _against_peers(case, mine, peers)
        if found is not None and found[0] != OUTVOTED:
            return Judged(*found, feed)
        outvoted = outvoted or found is not None
        checked = checked or bool(peers)
    return Judged(OUTVOTED if outvoted else "pass" if checked else "no peer")


def _typed(mine: Said) -> tuple[str, str] | None:
    if mine.error is None or isinstance(mine.error, AssayError):
        return None
    return "untyped error", summary(mine.error)


def _against_peers(case: Case, mine: Said, peers: Mapping[str, Said]) -> tuple[str, str] | None:
    answers = {name: said.results for name, said in peers.items() if said.results is not None}
    raised = {name: said.error for name, said in peers.items() if said.error is not None}
    if not answers:
        if ORT not in raised or mine.error is not None:  # the evaluator fails on much that it has not
            return None
        return "wrong", "gives a result where " + ", ".join(f"{n} says {summary(e)}" for n, e in raised.items())
    if mine.error is not None:
        return None if ORT in raised else ("error", f"{summary(mine.error)}; {', '.join(answers)} can")
    differing = {name: difference(case, mine.results, results) for name, results in answers.items()}
    if not any(differing.values()):
        return None
    if len(answers) == 2 and not differing[ORT]:
        return OUTVOTED, ""
    if len(answers) == 2 and not all(differing.values()):
        told = "; ".join(f"{name}: {text}" for name, text in differing.items() if text)
        return "split", f"peers disagree, Assay agrees with one. {told}"
    return "wrong", "; ".join(f"{name}: {text}" for name, text in differing.items() if text)


def _against_targets(case: Case, mine: Said, others: Sequence[Said]) -> tuple[str, str] | None:
    """Targets agree with each other, in refusing too."""
    for other in others:
        if (mine.error is None) != (other.error is None):
            return "wrong", f"targets: {summary(mine.error or other.error or Exception())} on one alone"
        if mine.results is not None and (text := difference(case, mine.results, other.results or {})):
            return "wrong", f"targets: {text}"
    return None


def difference(case: Case, mine: Mapping[str, Any] | None, theirs: Mapping[str, Any]) -> str:
    """How results differ by more than rounding; empty if they do not."""
    step = 1.0 if any(op in _QUANTISED for op in case.ops) else 0.0
    for name in case.outputs:
        first, second = (mine or {}).get(name), theirs.get(name)
        found = closeness(_plain(first), _plain(second), relative=0.0, absolute=_allowed(second, step))
        if not found.ok:
            return f"{name}: {found}"
    return ""


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
