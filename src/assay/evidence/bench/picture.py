"""A benchmark as a picture: bars of each peer's time ÷ Assay's, to the right of 1 where Assay is faster."""

from __future__ import annotations

import math
from collections.abc import Iterator

from assay import svg
from assay.evidence.bench.records import BenchRun, Match, Spread

_WIDTH, _TOP, _BOTTOM, _GAP, _BAR = 760, 76, 40, 10, 14
_COLOURS = ("#8a8f98", "#c2571a", "#2f6f9f", "#6a4c93", "#3c7a3c", "#a63446")
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


class Axis:
    """Ratios on a logarithmic scale between two borders of the picture."""

    def __init__(self, ratios: list[float], left: float, right: float) -> None:
        low, high = min([0.5, *ratios]), max([2.0, *ratios])
        self.least = max((tick for tick in _TICKS if tick <= low), default=_TICKS[0])
        self.most = min((tick for tick in _TICKS if tick >= high), default=_TICKS[-1])
        self._left, self._right = left, right

    def at(self, ratio: float) -> float:
        """Where a ratio lies; what is beyond the scale, at its end."""
        part = math.log(min(max(ratio, self.least), self.most) / self.least) / math.log(self.most / self.least)
        return self._left + part * (self._right - self._left)

    def ticks(self) -> list[float]:
        """The numbers to write at the axis."""
        return [tick for tick in _TICKS if self.least <= tick <= self.most]


def picture(run: BenchRun) -> str:
    """The whole picture as SVG."""
    left = _GAP * 2 + svg.CHARACTER * max((len(match.model) for match in run.matches), default=0)
    ratios = [found for match in run.matches for peer in run.peers if (found := match.ratio(peer))]
    axis = Axis([each for found in ratios for each in (found.low, found.high)], left, _WIDTH - 8 * svg.CHARACTER)
    group = _BAR * len(run.peers) + _GAP
    height = _TOP + group * len(run.matches) + _BOTTOM
    parts = [*_legend(run), *_scale(axis, height)]
    for index, match in enumerate(run.matches):
        parts += _group(match, run.peers, axis, left, _TOP + group * index)
    return svg.sheet(_title(run), _WIDTH, height, _GAP, parts)


def _title(run: BenchRun) -> str:
    return f"A peer's time ÷ Assay's ({run.header['target']}, {run.header['threads']} threads)"


def _legend(run: BenchRun) -> Iterator[str]:
    x = float(_GAP)
    for peer, colour in zip(run.peers, _COLOURS, strict=False):
        yield svg.rect(x, 32, 12, 12, fill=colour)
        yield svg.text(x + 16, 42, peer, fill=svg.INK)
        x += 16 + svg.CHARACTER * (len(peer) + 2)
    yield svg.text(x + _GAP, 42, "above 1: Assay is faster", fill=svg.FAINT)


def _scale(axis: Axis, height: int) -> Iterator[str]:
    for tick in axis.ticks():
        x, end = axis.at(tick), height - _BOTTOM
        yield svg.line(x, _TOP - 8, x, end, stroke=svg.INK if tick == 1 else "#d8d8d8")
        yield svg.text(x, end + 16, f"{tick:g}", text_anchor="middle", fill=svg.FAINT)


def _group(match: Match, peers: list[str], axis: Axis, left: float, top: int) -> Iterator[str]:
    middle = top + _BAR * len(peers) / 2 + 4
    yield svg.text(left - _GAP, middle, match.model, text_anchor="end", fill=svg.INK)
    for index, (peer, colour) in enumerate(zip(peers, _COLOURS, strict=False)):
        y = top + _BAR * index
        ratio = match.ratio(peer)
        if ratio is not None:
            yield from _bar(ratio, axis, y, colour)
        else:
            result = match.results.get(peer)
            reason = match.own.status if match.own and not match.own.counts else result.status if result else "absent"
            yield svg.text(axis.at(1) + 6, y + 11, reason, font_size=10, fill="#a63446")


def _bar(ratio: Spread, axis: Axis, y: float, colour: str) -> Iterator[str]:
    start, end = sorted((axis.at(1), axis.at(ratio.middle)))
    low, high = axis.at(ratio.low), axis.at(ratio.high)
    yield svg.rect(start, y + 2, max(1.0, end - start), _BAR - 4, fill=colour)
    centre = y + _BAR / 2
    yield svg.line(low, centre, high, centre, stroke=svg.INK)
    yield svg.text(max(end, high) + 4, y + 11, f"{ratio.middle:.2f}", font_size=10, fill=svg.INK)
