"""A benchmark as a picture: bars of each peer's time ÷ Assay's, to the right of 1 where Assay is faster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from assay.evidence.bench.records import Match, Run, Spread

_WIDTH, _TOP, _BOTTOM, _GAP, _BAR = 760, 76, 40, 10, 14
_CHARACTER = 7.2
"""About the width of a character of the font."""
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


def picture(run: Run) -> str:
    """The whole picture as SVG."""
    left = _GAP * 2 + _CHARACTER * max((len(match.model) for match in run.matches), default=0)
    ratios = [found for match in run.matches for peer in run.peers if (found := match.ratio(peer))]
    axis = Axis([each for found in ratios for each in (found.low, found.high)], left, _WIDTH - 8 * _CHARACTER)
    group = _BAR * len(run.peers) + _GAP
    height = _TOP + group * len(run.matches) + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" font-family="ui-monospace, monospace" font-size="12">',
        f"<title>{escape(_title(run))}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_GAP}" y="20" font-size="14" font-weight="bold" fill="#1a1a1a">{escape(_title(run))}</text>',
        *_legend(run),
        *_scale(axis, height),
    ]
    for index, match in enumerate(run.matches):
        parts += _group(match, run.peers, axis, left, _TOP + group * index)
    return "\n".join([*parts, "</svg>", ""])


def _title(run: Run) -> str:
    return f"A peer's time ÷ Assay's ({run.header['target']}, {run.header['threads']} threads)"


def _legend(run: Run) -> Iterator[str]:
    x = float(_GAP)
    for peer, colour in zip(run.peers, _COLOURS, strict=False):
        yield f'<rect x="{x:.1f}" y="32" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 16:.1f}" y="42" fill="#1a1a1a">{escape(peer)}</text>'
        x += 16 + _CHARACTER * (len(peer) + 2)
    yield f'<text x="{x + _GAP:.1f}" y="42" fill="#555555">above 1: Assay is faster</text>'


def _scale(axis: Axis, height: int) -> Iterator[str]:
    for tick in axis.ticks():
        x, colour = axis.at(tick), "#1a1a1a" if tick == 1 else "#d8d8d8"
        yield f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - _BOTTOM}" stroke="{colour}"/>'
        yield f'<text x="{x:.1f}" y="{height - _BOTTOM + 16}" text-anchor="middle" fill="#555555">{tick:g}</text>'


def _group(match: Match, peers: list[str], axis: Axis, left: float, top: int) -> Iterator[str]:
    middle = top + _BAR * len(peers) / 2 + 4
    yield f'<text x="{left - _GAP:.1f}" y="{middle:.1f}" text-anchor="end" fill="#1a1a1a">{escape(match.model)}</text>'
    for index, (peer, colour) in enumerate(zip(peers, _COLOURS, strict=False)):
        y = top + _BAR * index
        ratio = match.ratio(peer)
        if ratio is not None:
            yield from _bar(ratio, axis, y, colour)
        else:
            result = match.results.get(peer)
            reason = match.own.status if match.own and not match.own.counts else result.status if result else "absent"
            yield f'<text x="{axis.at(1) + 6:.1f}" y="{y + 11}" font-size="10" fill="#a63446">{escape(reason)}</text>'


def _bar(ratio: Spread, axis: Axis, y: float, colour: str) -> Iterator[str]:
    start, end = sorted((axis.at(1), axis.at(ratio.middle)))
    low, high = axis.at(ratio.low), axis.at(ratio.high)
    yield f'<rect x="{start:.1f}" y="{y + 2}" width="{max(1.0, end - start):.1f}" height="{_BAR - 4}" fill="{colour}"/>'
    centre = y + _BAR / 2
    yield f'<line x1="{low:.1f}" y1="{centre}" x2="{high:.1f}" y2="{centre}" stroke="#1a1a1a"/>'
    yield f'<text x="{max(end, high) + 4:.1f}" y="{y + 11}" font-size="10" fill="#1a1a1a">{ratio.middle:.2f}</text>'
