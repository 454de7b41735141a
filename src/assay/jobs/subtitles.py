"""What was said, as files have it: plain text, SubRip, WebVTT, JSON lines of phrases."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from assay.jobs.speech import Phrase


class SubtitleForm(NamedTuple):
    """How a file begins, and what a phrase is in it, given its number from 1 on."""

    head: str
    phrase: Callable[[int, Phrase], str]


def clock(seconds: float, point: str = ".") -> str:
    """A time as hours, minutes, seconds and thousandths."""
    whole = round(seconds * 1000)
    return f"{whole // 3600000:02}:{whole // 60000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"


def _line(number: int, phrase: Phrase) -> str:
    return f"{phrase.text}\n"


def _table(number: int, phrase: Phrase) -> str:
    return json.dumps(vars(phrase), ensure_ascii=False) + "\n"


def _subrip(number: int, phrase: Phrase) -> str:
    return f"{number}\n{clock(phrase.start, ',')} --> {clock(phrase.end, ',')}\n{_plain(phrase.text)}\n\n"


def _webvtt(number: int, phrase: Phrase) -> str:
    return f"{clock(phrase.start)} --> {clock(phrase.end)}\n{_plain(phrase.text)}\n\n"


def _plain(text: str) -> str:
    """A text in one line in which nothing looks like a time of the next phrase."""
    return " ".join(text.split()).replace("-->", "->")


FORMS: Mapping[str, SubtitleForm] = {
    "text": SubtitleForm("", _line),
    "srt": SubtitleForm("", _subrip),
    "vtt": SubtitleForm("WEBVTT\n\n", _webvtt),
    "json": SubtitleForm("", _table),
}
