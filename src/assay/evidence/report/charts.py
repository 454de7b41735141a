"""Charts as SVG. Colours are classes, so that a page or a picture's own style gives them, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from assay.evidence.records.schema import STATUSES

_WIDTH = 600
_LEFT, _RIGHT, _LINE = 112, 16, 30


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: its name in files, its title, and what is inside its `<svg>`."""

    name: str
    title: str
    height: int
    body: str

    @property
    def inline(self) -> str:
        """The picture within a page."""
        box = f'viewBox="0 0 {_WIDTH} {self.height}" role="img" aria-label="{escape(self.title, quote=True)}"'
        return f'<svg class="chart" {box}>{self.body}</svg>'

    def alone(self, style: str) -> str:
        """The picture as a file of its own."""
        box = f'viewBox="0 0 {_WIDTH} {self.height}" width="{_WIDTH}" height="{self.height}" role="img"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {box}>'
        return f"{head}<title>{escape(self.title)}</title><style>{style}</style>{self.body}</svg>\n"


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, kind: str, tip: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect {box} class="{kind}"><title>{escape(tip)}</title></rect>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def status_chart(counts: Mapping[str, Mapping[str, int]]) -> Chart | None:
    """Stacked bars: of each target the cases by status."""
    if not counts:
        return None
    parts: list[str] = []
    span = _WIDTH - _LEFT - 70
    for row, (target, found) in enumerate(counts.items()):
        y, total = 10 + row * (_LINE + 6), sum(found.values())
        x = float(_LEFT)
        parts.append(_text(_LEFT - 10, y + 19, _short(target, 15), "end"))
        for status in STATUSES:
            if count := found.get(status, 0):
                width = span * count / total
                parts.append(_bar(x, y, width - 1, _LINE - 4, f"s-{status}", f"{target}: {count} of {total} {status}"))
                if width > 8 * len(str(count)) + 4:
                    parts.append(_text(x + width / 2, y + 18, str(count), "middle", "inside"))
                x += width
        green = found.get("pass", 0) + found.get("pass_with_fallback", 0)
        parts.append(_text(_WIDTH - 4, y + 19, f"{green}/{total}", "end", "figure"))
    base = 10 + len(counts) * (_LINE + 6) + 12
    x, y = float(_LEFT), float(base)
    for status, meaning in STATUSES.items():
        if not any(found.get(status) for found in counts.values()):
            continue
        width = 22 + 7.4 * len(status)
        if x + width > _WIDTH:
            x, y = float(_LEFT), y + 20
        parts.append(_bar(x, y - 9, 10, 10, f"s-{status}", meaning))
        parts.append(_text(x + 15, y, status, kind="small"))
        x += width
    return Chart("status", "Cases by target and status", int(y) + 14, "".join(parts))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def speed_chart(speeds: Mapping[str, Sequence[tuple[str, float]]]) -> Chart | None:
    """Speed-ups of each target's cases from the slowest to the fastest, on a logarithmic scale."""
    values = [value for found in speeds.values() for _, value in found if value > 0]
    if not values:
        return None
    low, high = min(0.5, *values), max(2.0, *values)
    ticks = _ticks(low, high)
    low, high = ticks[0], ticks[-1]
    top, bottom = 30, 280

    def height(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    parts = [_line(60, height(tick), _WIDTH - _RIGHT, height(tick), "one" if tick == 1 else "grid") for tick in ticks]
    parts += [_text(52, height(tick) + 4, f"{tick:g}×", "end", "small") for tick in ticks]
    parts += list(_legend(list(speeds)))
    for place, (target, found) in enumerate(speeds.items()):
        ordered = sorted(found, key=lambda each: (each[1], each[0]))
        step = (_WIDTH - _RIGHT - 76) / max(len(ordered) - 1, 1)
        for rank, (name, value) in enumerate(ordered):
            tip = f"{name} on {target}: {value:.2f}×"
            dot = f'cx="{68 + rank * step:.1f}" cy="{height(value):.1f}" r="3.2" class="t-{place % 6}"'
            parts.append(f"<circle {dot}><title>{escape(tip)}</title></circle>")
    parts.append(
        _text(60, bottom + 20, "each dot is a case, slowest first; above 1× the compiled model is faster", kind="small")
    )
    return Chart("speed", "Speed-up over eager", bottom + 30, "".join(parts))


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten with 2 and 5 between them, from the last below `low` to the first above `high`."""
    start, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [factor * 10.0**power for power in range(start, end + 1) for factor in (1, 2, 5)]
    first = max(tick for tick in every if tick <= low)
    last = min(tick for tick in every if tick >= high)
    inner = [tick for tick in every if first <= tick <= last]
    return inner if len(inner) <= 8 else [10.0**power for power in range(start, end + 1)]


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = 60.0
    for place, name in enumerate(names):
        yield _bar(x, 4, 10, 10, f"t-{place % 6}", name)
        yield _text(x + 15, 13, _short(name, 24), kind="small")
        x += 30 + 7.4 * min(len(name), 24)


def accuracy_chart(errors: Mapping[str, Sequence[float]]) -> Chart | None:
    """How many cases have which worst error in parts of what is allowed, in powers of ten; above 1 is wrong."""
    values = [value for found in errors.values() for value in found]
    if not values:
        return None
    places = [_bin(value) for value in values]
    low, high = max(min(0, *places), -12), min(max(0, *places), 8)
    bins = list(range(low, high + 1))
    counts = {
        target: [sum(_clamp(_bin(v), low, high) == b for v in found) for b in bins] for target, found in errors.items()
    }
    most = max(sum(found[place] for found in counts.values()) for place in range(len(bins)))
    top, bottom = 30, 230
    step = (_WIDTH - 60 - _RIGHT) / len(bins)
    parts = list(_legend(list(errors)))
    for place, number in enumerate(bins):
        x, y = 60 + place * step, float(bottom)
        total = 0
        for index, (target, found) in enumerate(counts.items()):
            if found[place]:
                tall = (bottom - top - 14) * found[place] / most
                y -= tall
                total += found[place]
                parts.append(_bar(x + 2, y, step - 4, tall, f"t-{index % 6}", f"{target}: {found[place]} cases"))
        if total:
            parts.append(_text(x + step / 2, y - 4, str(total), "middle", "small"))
        if len(bins) < 14 or number % 2 == 0:
            label = "0" if number == low and low == -12 else f"1e{number - 1}"
            parts.append(_text(x, bottom + 16, label, "middle", "small"))
    limit = 60 + (1 - low) * step
    parts.append(_line(60, bottom, _WIDTH - _RIGHT, bottom))
    parts.append(_line(limit, top - 8, limit, bottom, "limit"))
    parts.append(_text(limit - 6, top + 2, "allowed", "end", "small"))
    parts.append(
        _text(60, bottom + 36, "worst error ÷ what rounding explains; right of the line is wrong", kind="small")
    )
    return Chart("accuracy", "Worst error in parts of what is allowed", bottom + 46, "".join(parts))


def _bin(value: float) -> int:
    """The power of ten at or above a value: 0 holds what is above 0.1 and at most 1."""
    if value <= 0:
        return -12
    return 8 if math.isinf(value) else math.ceil(math.log10(value))


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def plan_chart(plans: Mapping[str, Sequence[tuple[int, int]]], blocked: Mapping[str, int]) -> Chart | None:
    """Steps: with so many fixes (to the right) so many models are unlocked (upwards)."""
    plans = {target: steps for target, steps in plans.items() if steps}
    if not plans:
        return None
    widest = max(fixes for steps in plans.values() for fixes, _ in steps)
    most = max(blocked[target] for target in plans)
    top, bottom, right = 34, 260, _WIDTH - _RIGHT - 8

    def across(fixes: float) -> float:
        return 60 + (right - 60) * fixes / widest

    def up(models: float) -> float:
        return bottom - (bottom - top) * models / most

    parts = list(_legend(list(plans)))
    for tick in _whole_ticks(most):
        parts += [_line(60, up(tick), right, up(tick)), _text(52, up(tick) + 4, str(tick), "end", "small")]
    for tick in _whole_ticks(widest):
        parts.append(_text(across(tick), bottom + 16, str(tick), "middle", "small"))
    for place, (target, steps) in enumerate(plans.items()):
        aside = 3 * (place - (len(plans) - 1) / 2)  # so that no line hides another
        path = f"M{across(0):.1f} {up(0) + aside:.1f}"
        for fixes, models in steps:
            path += f"H{across(fixes) + aside:.1f}V{up(models) + aside:.1f}"
        parts.append(f'<path d="{path}H{right:.1f}" class="step l-{place % 6}"/>')
        for fixes, models in steps:
            tip = f"{target}: {fixes} fixes unlock {models} of {blocked[target]} models"
            dot = f'cx="{across(fixes) + aside:.1f}" cy="{up(models) + aside:.1f}" r="4" class="t-{place % 6}"'
            parts.append(f"<circle {dot}><title>{escape(tip)}</title></circle>")
    parts.append(_text(right, bottom + 34, "fixes → models unlocked", "end", "small"))
    return Chart("plan", "Models that so many fixes unlock", bottom + 42, "".join(parts))


def _whole_ticks(most: int) -> list[int]:
    step = max(1, math.ceil(most / 8))
    return list(range(0, most + 1, step))
