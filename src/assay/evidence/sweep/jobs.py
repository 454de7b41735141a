"""What a sweep does: a job is one case with its limits, and everything that a process needs to run it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from assay.errors import BadFeed
from assay.evidence.records import Case, Configuration, Environment


class CaseLimits(Struct, frozen=True):
    """What one case may take."""

    seconds: float = 900.0
    memory: int = 20 << 30


class Job(Struct, frozen=True):
    """One case to run."""

    case: Case
    environment: Environment
    limits: CaseLimits = CaseLimits()
    threads: int = 0
    """0: as many as the process may use."""
    rounds: int = 10
    """How many timed runs at most; with 0 nothing but the first compilation is timed, and no task is set."""
    last: bool = False
    """Whether the last of them alone counts."""
    configuration: Configuration | None = None
    """Of an op: what it is called with."""
    models: tuple[str, ...] = ()
    """Of an op: who uses it so."""
    skipped: str = ""
    """Why it is not to be run."""


class Shard(Struct, frozen=True):
    """One of several equal parts of a sweep, counted from 1."""

    index: int = 1
    count: int = 1


def parse_shard(text: str) -> Shard:
    """`2/5` is the second of five parts; BadFeed for anything else."""
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise BadFeed(f"there is no part '{text}'", hint="write 2/5 for the second of five parts")
    return Shard(int(index), int(count))


def part(jobs: Sequence[Job], shard: Shard) -> list[Job]:
    """The jobs of a part; every job is in exactly one."""
    return list(jobs[shard.index - 1 :: shard.count])
