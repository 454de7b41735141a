"""Turns: racers run one after the other, round after round, never two at once.

What disturbs the machine for longer than a turn thus disturbs all of them, and ratios are taken within a round. How
much of a core each racer uses while it is not its turn is measured, and how much of the machine others use.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from assay.evidence.machine import DISTURBED, OutsideLoad, cpu_of_all

_PAUSE = 0.1
"""Seconds after a turn, in which its threads come to rest: onnxruntime's spin for about 50 ms, torch's for 10 ms."""
_MOST = 2000
"""Inferences in a turn."""


class ContestantDied(Exception):
    """A contestant's process ended, hung or refused; the text says how."""


class Racer(Protocol):
    """Somebody who runs when it is his turn."""

    def turn(self, count: int) -> list[float]:
        """The seconds that each of `count` inferences took; `ContestantDied` if it comes to nothing."""
        ...

    def cpu(self) -> float | None:
        """The seconds of CPU time used so far; None where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the median seconds of each racer's turn, and the part of the machine that others used meanwhile."""

    turns: Mapping[str, float]
    others: float | None


@dataclass(slots=True)
class Race:
    """What came of some rounds: how many inferences a turn has, CPU use of each racer at rest, why some fell out."""

    rounds: list[Round] = field(default_factory=list[Round])
    iterations: dict[str, int] = field(default_factory=dict[str, int])
    idle: dict[str, float | None] = field(default_factory=dict[str, "float | None"])
    fallen: dict[str, str] = field(default_factory=dict[str, str])


def interleave(
    racers: Mapping[str, Racer],
    repeat: int,
    seconds: float,
    tell: Callable[[int], None] = lambda done: None,
    used: Callable[[], float | None] = cpu_of_all,
) -> Race:
    """Rounds in which every racer has one turn of about `seconds`, each time beginning with another.

    There are `repeat` of them; if others disturb, up to twice as many, of which the quietest are kept. Who dies is out.
    `used` tells the CPU time of the whole machine.
    """
    race = Race()
    live = {name: _Lane(racer) for name, racer in racers.items()}

    def attempt(name: str, count: int) -> list[float]:
        try:
            return live[name].turn(count)
        except ContestantDied as death:
            race.fallen[name] = str(death)
            del live[name]
            return []

    for name in racers:
        first = attempt(name, 1)
        pace = attempt(name, 3 if first[0] < seconds else 1) if first else []
        if pace:
            race.iterations[name] = min(_MOST, max(1, round(seconds / statistics.median(pace))))
    while live and len(race.rounds) < 2 * repeat and _quiet(race.rounds) < repeat:
        order, start = tuple(live), len(race.rounds) % len(live)
        watch = OutsideLoad([lane.racer.cpu for lane in live.values()], used)
        turns = {name: attempt(name, race.iterations[name]) for name in order[start:] + order[:start]}
        medians = {name: statistics.median(times) for name, times in turns.items() if times}
        race.rounds.append(Round(medians, watch.others()))
        tell(len(race.rounds))
    race.rounds = sorted(race.rounds, key=lambda each: each.others or 0.0)[:repeat]
    race.idle = {name: lane.idle for name, lane in live.items()}
    return race


def _quiet(rounds: Sequence[Round]) -> int:
    """How many rounds were not disturbed, as far as is known."""
    return sum((each.others or 0.0) <= DISTURBED for each in rounds)


class _Lane:
    """A racer, and what it uses of the CPU while it is not its turn."""

    def __init__(self, racer: Racer) -> None:
        self.racer = racer
        self._rested: tuple[float, float] | None = None
        self._cpu = self._wall = 0.0

    def turn(self, count: int) -> list[float]:
        """The racer's turn."""
        cpu = self.racer.cpu()
        if self._rested is not None and cpu is not None:
            self._cpu += cpu - self._rested[0]
            self._wall += time.perf_counter() - self._rested[1]
        times = self.racer.turn(count)
        time.sleep(_PAUSE)
        cpu = self.racer.cpu()
        self._rested = None if cpu is None else (cpu, time.perf_counter())
        return times

    @property
    def idle(self) -> float | None:
        """The part of one core that it used between turns."""
        return self._cpu / self._wall if self._wall else None
