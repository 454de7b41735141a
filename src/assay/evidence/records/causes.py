"""Messages without what changes from run to run, so that one cause is told in the same words each time."""

from __future__ import annotations

import re

_TEMPORARY = r"(?<![\w.])/(?:tmp|var/tmp|var/folders|dev/shm)/[^\s'\"`,;:()<>\[\]{}]*"
_UUID = r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
_HEXADECIMAL = r"\b0[xX][0-9a-fA-F]+"
_HASH = r"(?<![\w.])(?![0-9]+e[+-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"
_COUNTED = r"(?P<name>arg|primals|tangents|getitem|buf|fwd|bwd|s|v|t)[0-9]+"
_SYMBOL = r"(?P<symbol>u)(?!(?:1|2|4|8|16|32|64)\b)[0-9]+"
_NUMBERED = re.compile(rf"(?<![\w#])(?:{_COUNTED}|{_SYMBOL})(?=\b|_)")
_SHAPE = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?:x[0-9]+)+(?![A-Za-z0-9])")
_DIGITS = re.compile(r"[0-9]+")
_NUMBER = r"(?:(?<![\w.)\]#])-)?(?<![A-Za-z0-9])[0-9]+(?:\.[0-9]+)*(?:[eE][+-]?[0-9]+)?"
_FIGURE = re.compile("|".join((_TEMPORARY, _UUID, _HEXADECIMAL, _HASH)))
_PLAIN = re.compile(_NUMBER)


def normalised(text: str) -> str:
    """`text` with `#` for numbers, addresses, hashes, UUIDs and temporary paths, and single spaces.

    Digits that follow a letter belong to a name and stay: `f32`, `conv2d`, `torch.int64`. Names that a tracer counts up
    (`arg0_1`, `add_17`, the symbols `s77` and `u0`) lose their numbers. What is normalised stays as it is.
    """
    found = _FIGURE.sub("#", " ".join(text.split()))
    found = _SHAPE.sub(lambda match: _DIGITS.sub("#", match.group()), found)
    found = _NUMBERED.sub(lambda match: f"{match['name'] or match['symbol']}#", found)
    return _PLAIN.sub("#", found)
