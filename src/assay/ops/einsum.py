"""Einstein summation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.ir.dims import Dim, eq
from assay.ir.dtypes import NUMERIC, Array, DType
from assay.ir.facts import Fact
from assay.ir.types import Shape
from assay.ops.builder import FactMissing
from assay.ops.linear import merged
from assay.ops.registry import Compute, Tolerance, op
from assay.ops.samples import Rng, draw, listed
from assay.ops.shapes import broadcast_dim

ELLIPSIS = "..."
Term = tuple[str, ...]


def parse(equation: str, ranks: Sequence[int | None]) -> tuple[list[Term], Term] | None:
    """The labels of each operand's axes and of the result's, the axes of an ellipsis labelled from the last one
    (…3, …2, …1). None where a rank is needed and unknown; ValueError where the equation does not fit."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = [_tokens(term) for term in left.split(",")]
    if len(written) != len(ranks):
        raise ValueError(f"'{equation}' has {len(written)} terms for {len(ranks)} operands")
    if any(ELLIPSIS in term and rank is None for term, rank in zip(written, ranks, strict=True)):
        return None
    terms = [_spread(term, rank, equation) for term, rank in zip(written, ranks, strict=True)]
    hidden = max(([label for label in term if len(label) > 1] for term in terms), key=len)
    counts = Counter(label for term in terms for label in term)
    once = sorted(label for label, count in counts.items() if count == 1 and len(label) == 1)
    result = tuple(once) if not arrow else _tokens(right)
    output = tuple(hidden) + result if not arrow else tuple(l for t in result for l in (hidden if t == ELLIPSIS else [t]))
    if any(label not in counts for label in output) or len(set(output)) < len(output):
        raise ValueError(f"'{equation}' asks for a result with unknown or repeated labels")
    return terms, output


def _tokens(term: str) -> Term:
    before, dots, after = term.partition(ELLIPSIS)
    letters = before + after
    if not all(letter.isascii() and letter.isalpha() for letter in letters):
        raise ValueError(f"'{term}' is no term of an Einstein summation")
    return (*before, *([ELLIPSIS] if dots else []), *after)


def _spread(term: Term, rank: int | None, equation: str) -> Term:
    """A term with one label an axis."""
    named = len(term) - (ELLIPSIS in term)
    free = 0 if rank is None else rank - named
    if free < 0 or (free and ELLIPSIS not in term):
        raise ValueError(f"the term '{''.join(term)}' of '{equation}' does not fit an operand of rank {rank}")
    hidden = [f"{ELLIPSIS}{i}" for i in range(free, 0, -1)]
    return tuple(label for token in term for label in (hidden if token == ELLIPSIS else [token]))
