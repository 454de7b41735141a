"""Suites of a benchmark: models that are run together, how they are run, and the page that tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.evidence.bench.onnx_page import PEER, write_onnx_page
from assay.evidence.bench.page import write_page
from assay.evidence.bench.peers import PEERS
from assay.evidence.bench.records import BenchRun
from assay.zoo.onnx_models import ONNX_MODELS
from assay.zoo.torch.workloads import SUITES as TORCH_SUITES


@dataclass(frozen=True, slots=True)
class Suite:
    """Models by name, the page and who writes it, and what holds unless the user says otherwise."""

    models: tuple[str, ...] = ()
    page: Path = Path("docs/performance.md")
    write: Callable[[Path, BenchRun], None] = write_page
    peers: tuple[str, ...] = PEERS
    repeat: int = 20
    seconds: float = 0.3
    cold: bool = True
    timeout: float = 900.0
    starts: int = 5


SUITES: Mapping[str, Suite] = {
    **{name: Suite(tuple(models)) for name, models in TORCH_SUITES.items()},
    "onnx": Suite(
        models=tuple(ONNX_MODELS),
        page=Path("docs/onnx-models.md"),
        write=write_onnx_page,
        peers=(PEER,),
        repeat=9,
        seconds=0.15,
        cold=False,
        timeout=120.0,
        starts=1,
    ),
}
