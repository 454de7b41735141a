"""Charts as SVG. Colours are classes, so that a page or a picture's own style gives them, in light and in dark.

A chart is drawn twice: wide, and narrow for small screens, so that its letters are as large there as anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import wrap

from assay import svg
from assay.evidence.records.schema import STATUSES

_WIDE, _NARROW = 600, 340
_RIGHT, _LINE = 16, 30
_AXIS = 60
"""Where the plot begins; the numbers of its axis stand to the left of that."""
_LETTER = 7.4
"""How wide a letter of small text is, about."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One drawing: its size, and what is inside its `<svg>`."""

    width: int
    height: int
    body: str

    @property
    def box(self) -> str:
        """What tells a browser the size."""
        return svg.box(self.width, self.height)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its name in files, its title, and its two drawings."""

    name: str
    title: str
    wide: Picture
    narrow: Picture

    @property
    def inline(self) -> str:
        """The chart within a page, whose style shows one of the two."""
        drawn = {"wide": self.wide, "narrow": self.narrow}
        return "".join(
            svg.element("svg", each.body, class_=f"chart {kind}", viewBox=each.box, role="img", aria_label=self.title)
            for kind, each in drawn.items()
        )

    def alone(self, style: str) -> str:
        """The chart as a file of its own."""
        inside = svg.title(self.title), svg.element("style", style), self.wide.body
        size = {"width": self.wide.width, "height": self.wide.height}
        picture = svg.element(
            "svg", *inside, xmlns=svg.NAMESPACE, class_="chart", viewBox=self.wide.box, **size, role="img"
        )
        return f"{picture}\n"


def _drawn(name: str, title: str, draw: Callable[[int], Picture]) -> Chart:
    return Chart(name, title, draw(_WIDE), draw(_NARROW))


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "label") -> str:
    return svg.text(float(x), float(y), text, text_anchor=anchor, class_=kind)


def _bar(x: float, y: float, width: float, height: float, kind: str, tip: str) -> str:
    sizes = float(x), float(y), max(float(width), 0.5), float(height)
    return svg.rect(*sizes, svg.title(tip), class_=kind)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return svg.line(float(x1), float(y1), float(x2), float(y2), class_=kind)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _caption(y: float, text: str, width: int) -> tuple[list[str], int]:
    """Lines of small text under a plot, and where they end."""
    lines = wrap(text, int((width - _AXIS) / (_LETTER * 0.92)))
    return [_text(_AXIS, y + 18 * at, line, kind="small") for at, line in enumerate(lines)], int(y + 18 * len(lines))


def _keys(entries: Mapping[str, tuple[str, str]], left: float, top: float, width: int) -> tuple[list[str], float]:
    """A legend in as many lines as it takes, and the baseline of its last: by name the class and the tip of a key."""
    parts: list[str] = []
    x, y = left, top
    for name, (kind, tip) in entries.items():
        room = 26 + _LETTER * len(name)
        if x > left and x + room > width:
            x, y = left, y + 20
        parts += [_bar(x, y - 10, 11, 11, kind, tip), _text(x + 16, y, name, kind="small")]
        x += room
    return parts, y


def _targets(names: Sequence[str], width: int) -> tuple[list[str], float]:
    """The legend of targets above a plot."""
    return _keys({_short(name, 24): (f"t-{at % 6}", name) for at, name in enumerate(names)}, _AXIS, 14, width)


def status_chart(counts: Mapping[str, Mapping[str, int]]) -> Chart | None:
    """Stacked bars: of each target the cases by status."""
    return _drawn("status", "Cases by target and status", partial(_statuses, counts)) if counts else None


def _statuses(counts: Mapping[str, Mapping[str, int]], width: int) -> Picture:
    left = 112 if width == _WIDE else 8
    above = 0 if width == _WIDE else 20  # where names stand above their bars
    parts: list[str] = []
    span = width - left - 76
    for row, (target, found) in enumerate(counts.items()):
        y, total = 10 + above + row * (_LINE + 6 + above), sum(found.values())
        x = float(left)
        label = (left, y - 6, "start") if above else (left - 10, y + 19, "end")
        parts.append(_text(label[0], label[1], _short(target, 40 if above else 15), label[2]))
        for status in STATUSES:
            if count := found.get(status, 0):
                size = span * count / total
                parts.append(_bar(x, y, size - 1, _LINE - 4, f"s-{status}", f"{target}: {count} of {total} {status}"))
                if size > 9 * len(str(count)) + 6:
                    parts.append(_text(x + size / 2, y + 18, str(count), "middle", f"inside i-{status}"))
                x += size
        green = found.get("pass", 0) + found.get("pass_with_fallback", 0)
        parts.append(_text(width - 4, y + 19, f"{green}/{total}", "end", "figure"))
    base = 10 + len(counts) * (_LINE + 6 + above) + 14
    seen = {
        status: meaning for status, meaning in STATUSES.items() if any(found.get(status) for found in counts.values())
    }
    keys, y = _keys({status: (f"s-{status}", meaning) for status, meaning in seen.items()}, left, base, width)
    return Picture(width, int(y) + 14, "".join([*parts, *keys]))


def speed_chart(speeds: Mapping[str, Sequence[tuple[str, float]]]) -> Chart | None:
    """Speed-ups of each target's cases from the slowest to the fastest, on a logarithmic scale."""
    values = [value for found in speeds.values() for _, value in found if value > 0]
    return _drawn("speed", "Speed-up over eager", partial(_speeds, speeds, values)) if values else None


def _speeds(speeds: Mapping[str, Sequence[tuple[str, float]]], values: Sequence[float], width: int) -> Picture:
    ticks = _ticks(min(0.5, *values), max(2.0, *values))
    low, high = ticks[0], ticks[-1]
    parts, legend = _targets(list(speeds), width)
    top = legend + 16
    bottom = top + 250

    def height(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    for tick in ticks:
        parts.append(_line(_AXIS, height(tick), width - _RIGHT, height(tick), "one" if tick == 1 else "grid"))
        parts.append(_text(_AXIS - 8, height(tick) + 4, f"{tick:g}×", "end", "small"))
    for place, (target, found) in enumerate(speeds.items()):
        ordered = sorted(found, key=lambda each: (each[1], each[0]))
        step = (width - _RIGHT - _AXIS - 16) / max(len(ordered) - 1, 1)
        for rank, (name, value) in enumerate(ordered):
            tip = svg.title(f"{name} on {target}: {value:.2f}×")
            parts.append(svg.dot(_AXIS + 8 + rank * step, height(value), 3.2, tip, class_=f"t-{place % 6}"))
    caption = "each dot is a case, slowest first; above 1× the compiled model is faster"
    lines, end = _caption(bottom + 24, caption, width)
    return Picture(width, end, "".join([*parts, *lines]))


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten with 2 and 5 between them, from the last below `low` to the first above `high`."""
    start, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [factor * 10.0**power for power in range(start, end + 1) for factor in (1, 2, 5)]
    first = max(tick for tick in every if tick <= low)
    last = min(tick for tick in every if tick >= high)
    inner = [tick for tick in every if first <= tick <= last]
    return inner if len(inner) <= 8 else [10.0**power for power in range(start, end + 1)]


def accuracy_chart(errors: Mapping[str, Sequence[float]]) -> Chart | None:
    """How many cases have which worst error in parts of what is allowed, in powers of ten; above 1 is wrong."""
    if not any(errors.values()):
        return None
    return _drawn("accuracy", "Worst error in parts of what is allowed", partial(_errors, errors))


def _errors(errors: Mapping[str, Sequence[float]], width: int) -> Picture:
    places = [_bin(value) for found in errors.values() for value in found]
    low, high = max(min(0, *places), -12), min(max(0, *places), 8)
    bins = list(range(low, high + 1))
    counts = {
        target: [sum(_clamp(_bin(v), low, high) == b for v in found) for b in bins] for target, found in errors.items()
    }
    most = max(sum(found[place] for found in counts.values()) for place in range(len(bins)))
    parts, legend = _targets(list(errors), width)
    top = legend + 34
    bottom = top + 190
    step = (width - _AXIS - _RIGHT) / len(bins)
    every = math.ceil(5.5 * _LETTER / step)  # so that labels do not run into each other
    for place, number in enumerate(bins):
        x, y, total = _AXIS + place * step, float(bottom), 0
        for index, (target, found) in enumerate(counts.items()):
            if found[place]:
                tall = (bottom - top - 14) * found[place] / most
                y, total = y - tall, total + found[place]
                parts.append(_bar(x + 2, y, step - 4, tall, f"t-{index % 6}", f"{target}: {found[place]} cases"))
        if total:
            parts.append(_text(x + step / 2, y - 4, str(total), "middle", "small"))
        if (number - 1) % every == 0:
            label = "0" if number == low and low == -12 else f"1e{number - 1}"
            parts.append(_text(x, bottom + 18, label, "middle", "small"))
    limit = _AXIS + (1 - low) * step
    parts.append(_line(_AXIS, bottom, width - _RIGHT, bottom))
    parts.append(_line(limit, top - 20, limit, bottom, "limit"))
    parts.append(_text(limit - 6, top - 12, "allowed", "end", "small"))
    caption = "worst error ÷ what rounding explains; right of the line is wrong"
    lines, end = _caption(bottom + 40, caption, width)
    return Picture(width, end, "".join([*parts, *lines]))


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
    return _drawn("plan", "Models that so many fixes unlock", partial(_plans, plans, blocked)) if plans else None


def _plans(plans: Mapping[str, Sequence[tuple[int, int]]], blocked: Mapping[str, int], width: int) -> Picture:
    widest = max(fixes for steps in plans.values() for fixes, _ in steps)
    most = max(blocked[target] for target in plans)
    parts, legend = _targets(list(plans), width)
    top, right = legend + 20, width - _RIGHT - 8
    bottom = top + 226

    def across(fixes: float) -> float:
        return _AXIS + (right - _AXIS) * fixes / widest

    def up(models: float) -> float:
        return bottom - (bottom - top) * models / most

    for tick in _whole_ticks(most, 8):
        parts += [_line(_AXIS, up(tick), right, up(tick)), _text(_AXIS - 8, up(tick) + 4, str(tick), "end", "small")]
    for tick in _whole_ticks(widest, width // 60):
        parts.append(_text(across(tick), bottom + 18, str(tick), "middle", "small"))
    parts += list(_step_lines(plans, blocked, across, up, right))
    lines, end = _caption(bottom + 40, "fixes → models unlocked", width)
    return Picture(width, end, "".join([*parts, *lines]))


def _step_lines(
    plans: Mapping[str, Sequence[tuple[int, int]]],
    blocked: Mapping[str, int],
    across: Callable[[float], float],
    up: Callable[[float], float],
    right: float,
) -> Iterator[str]:
    for place, (target, steps) in enumerate(plans.items()):
        aside = 3 * (place - (len(plans) - 1) / 2)  # so that no line hides another
        path = f"M{across(0):.1f} {up(0) + aside:.1f}"
        for fixes, models in steps:
            path += f"H{across(fixes) + aside:.1f}V{up(models) + aside:.1f}"
        yield svg.element("path", d=f"{path}H{right:.1f}", class_=f"step l-{place % 6}")
        for fixes, models in steps:
            tip = svg.title(f"{target}: {fixes} fixes unlock {models} of {blocked[target]} models")
            yield svg.dot(across(fixes) + aside, up(models) + aside, 4, tip, class_=f"t-{place % 6}")


def _whole_ticks(most: int, count: int) -> list[int]:
    step = max(1, math.ceil(most / count))
    return list(range(0, most + 1, step))
