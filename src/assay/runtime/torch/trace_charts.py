"""Bar charts as SVG text, with nothing but the standard library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _ROW, _TOP, _BOTTOM, _GAP = 720, 22, 56, 24, 8
_CHARACTER = 7.2
"""About the width of a character of the font."""


def bar_chart(title: str, label: str, bars: Sequence[tuple[str, int]]) -> str:
    """Horizontal bars, one for each (text, count); `label` says what the texts are."""
    left = _GAP + _CHARACTER * max([len(text) for text, _ in bars] + [len(label)])
    most = max((count for _, count in bars), default=0) or 1
    room = _WIDTH - left - 2 * _GAP - _CHARACTER * len(str(most))
    height = _TOP + _ROW * len(bars) + _BOTTOM
    rows = [
        line
        for at, (text, count) in enumerate(bars)
        for line in _bar(left, _TOP + _ROW * at, text, count, max(1.0, room * count / most))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" role="img" font-family="ui-monospace, monospace" font-size="12">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            f'<text x="{_GAP}" y="20" font-size="14" font-weight="bold" fill="#1a1a1a">{escape(title)}</text>',
            f'<text x="{left:.1f}" y="44" text-anchor="end" fill="#555555">{escape(label)}</text>',
            f'<text x="{left + _GAP:.1f}" y="44" fill="#555555">nodes</text>',
            *rows,
            "</svg>",
            "",
        ]
    )


def _bar(left: float, top: float, text: str, count: int, length: float) -> tuple[str, str, str]:
    base = top + _ROW - 7
    return (
        f'<text x="{left:.1f}" y="{base}" text-anchor="end" fill="#1a1a1a">{escape(text)}</text>',
        f'<rect x="{left + _GAP:.1f}" y="{top + 2}" width="{length:.1f}" height="{_ROW - 6}" fill="#2f6f9f"/>',
        f'<text x="{left + 1.5 * _GAP + length:.1f}" y="{base}" fill="#1a1a1a">{count}</text>',
    )
