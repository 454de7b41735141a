"""Names of files for names of things: safe in paths and links, and unique also where case does not count."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

_LONGEST = 80


def file_names(things: Iterable[str]) -> Mapping[str, str]:
    """A file name (without ending) for each thing.

    It has `-` for what is no letter, digit, dot or underscore. A name that was cut, or that another thing would have
    too, ends with a part of the thing's hash.
    """
    safe = {thing: _safe(thing) for thing in sorted(set(things))}
    taken = Counter(name.lower() for name in safe.values())
    return {
        thing: f"{name}-{_hash(thing)}" if taken[name.lower()] > 1 or len(thing) > _LONGEST else name
        for thing, name in safe.items()
    }


def _safe(thing: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", thing)[:_LONGEST].strip("-.") or "thing"


def _hash(thing: str) -> str:
    return hashlib.sha256(thing.encode("utf-8", "surrogatepass")).hexdigest()[:8]
