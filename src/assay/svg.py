"""SVG as text: elements, and the white sheet that simple pictures are drawn on."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

NAMESPACE = "http://www.w3.org/2000/svg"
INK, FAINT = "#1a1a1a", "#555555"
CHARACTER = 7.2
"""About the width of a character on a sheet."""

Attribute = str | float | None


def element(tag: str, *content: str, **attributes: Attribute) -> str:
    """An element; `content` is SVG. Fractions get one digit, attributes that are None are left out.

    In the name of an attribute `_` stands for `-`; `class_` is `class`.
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    head = " ".join([tag, *(f'{name}="{_written(value)}"' for name, value in given.items())])
    return f"<{head}>{''.join(content)}</{tag}>" if content else f"<{head}/>"


def _written(value: str | float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))


def title(content: str) -> str:
    """What a reader hears of a picture, or sees on pointing at an element."""
    return element("title", escape(content))


def text(x: float, y: float, content: str, **attributes: Attribute) -> str:
    """Text whose baseline begins, or with `text_anchor` ends or is centred, at a point."""
    return element("text", escape(content), x=x, y=y, **attributes)


def rect(x: float, y: float, width: float, height: float, *content: str, **attributes: Attribute) -> str:
    """A rectangle by its upper left corner and its size."""
    return element("rect", *content, x=x, y=y, width=width, height=height, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Attribute) -> str:
    """A line between two points."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def dot(x: float, y: float, radius: float, *content: str, **attributes: Attribute) -> str:
    """A disc by its centre."""
    return element("circle", *content, cx=x, cy=y, r=radius, **attributes)


def box(width: int, height: int) -> str:
    """The `viewBox` of a picture of this size."""
    return f"0 0 {width} {height}"


def sheet(heading: str, width: int, height: int, margin: int, parts: Iterable[str]) -> str:
    """A file with a picture on white under a heading, in a font whose characters are all as wide."""
    lines = [
        title(heading),
        element("rect", width=width, height=height, fill="#ffffff"),
        text(margin, 20, heading, font_size=14, font_weight="bold", fill=INK),
        *parts,
        "",
    ]
    picture = element(
        "svg",
        "\n",
        "\n".join(lines),
        xmlns=NAMESPACE,
        viewBox=box(width, height),
        width=width,
        height=height,
        role="img",
        font_family="ui-monospace, monospace",
        font_size=12,
    )
    return f"{picture}\n"
