"""What an OpInfo run's processes say to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from assay.evidence.opinfo.records import OpUnit, SampleResult

EAGER = "eager"


@dataclass(frozen=True, slots=True)
class UnitJob:
    """What a worker is to do; `known` is settled already, the samples `alone` are not to be grouped."""

    unit: OpUnit
    target: str
    peers: tuple[str, ...] = ()
    limit: int | None = None
    known: frozenset[tuple[str, int]] = frozenset()
    alone: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class SamplesMade:
    """The samples are made: how many, and the least tolerance that the OpInfo states."""

    samples: int
    tolerance: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Begun:
    """These samples are about to run."""

    backend: str
    samples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of samples."""

    backend: str
    verdicts: Mapping[int, SampleResult]


@dataclass(frozen=True, slots=True)
class Differentiable:
    """A sample has a gradient in eager."""

    sample: int


@dataclass(frozen=True, slots=True)
class GraphsCompiled:
    """Assay compiled graphs: how many by phase; by phase the aten ops that stayed opaque, with the reason."""

    graphs: Mapping[str, int]
    opaque: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """The job itself failed: OpInfo could not make its samples, or there is a defect here."""

    reason: str


Message: TypeAlias = SamplesMade | Begun | Settled | Differentiable | GraphsCompiled
