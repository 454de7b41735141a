"""Bar charts as SVG text."""

from __future__ import annotations

from collections.abc import Sequence

from assay import svg

_WIDTH, _ROW, _TOP, _BOTTOM, _GAP = 720, 22, 56, 24, 8


def bar_chart(title: str, label: str, bars: Sequence[tuple[str, int]]) -> str:
    """Horizontal bars, one for each (text, count); `label` says what the texts are."""
    left = _GAP + svg.CHARACTER * max([len(text) for text, _ in bars] + [len(label)])
    most = max((count for _, count in bars), default=0) or 1
    room = _WIDTH - left - 2 * _GAP - svg.CHARACTER * len(str(most))
    rows = [
        line
        for at, (text, count) in enumerate(bars)
        for line in _bar(left, _TOP + _ROW * at, text, count, max(1.0, room * count / most))
    ]
    heads = [
        svg.text(left, 44, label, text_anchor="end", fill=svg.FAINT),
        svg.text(left + _GAP, 44, "nodes", fill=svg.FAINT),
    ]
    return svg.sheet(title, _WIDTH, _TOP + _ROW * len(bars) + _BOTTOM, _GAP, [*heads, *rows])


def _bar(left: float, top: int, text: str, count: int, length: float) -> tuple[str, str, str]:
    base = top + _ROW - 7
    return (
        svg.text(left, base, text, text_anchor="end", fill=svg.INK),
        svg.rect(left + _GAP, top + 2, length, _ROW - 6, fill="#2f6f9f"),
        svg.text(left + 1.5 * _GAP + length, base, str(count), fill=svg.INK),
    )
