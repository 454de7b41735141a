"""How near the scores of two engines are, step by step, and how commands tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.cli.output import CommandOutput
from assay.ir.dtypes import Array


def likeness(ours: Sequence[Array], theirs: Sequence[Array], precise: Sequence[Array]) -> dict[str, Any]:
    """What there is to tell of scores that two engines give in the same steps, as far as all have some. They agree if
    rounding explains how far apart they are: the distance between ours and those that are carried in f64."""
    from assay.evidence.compare.arrays import closeness, merged, signal
    from assay.evidence.compare.models import allowed_error, noise_floor

    count = min(map(len, (ours, theirs, precise)))
    steps = [str(step) for step in range(count)]
    mine, other, carried = (dict(zip(steps, each, strict=False)) for each in (ours, theirs, precise))
    floors = noise_floor(mine, carried)
    near = merged([closeness(mine[s], other[s], absolute=allowed_error(other[s], floors[s])) for s in steps])
    ratios = [ratio for s in steps if (ratio := signal(mine[s], other[s]).snr) is not None]
    return {
        "steps": count,
        "same_choices": sum(int(mine[s].argmax()) == int(other[s].argmax()) for s in steps),
        "max_abs": near.max_abs,
        "max_rel": near.max_rel,
        "largest": max(float(np.abs(scores).max()) for scores in other.values()),
        "lowest_snr": min(ratios),
        "noise_floor": max(floors.values()),
        "agrees": near.ok,
    }


def show_likeness(report: CommandOutput, peer: str, found: dict[str, Any]) -> None:
    """Tell it."""
    report.text()
    report.text(f"Against {peer}:")
    report.text(f"  the best token is the same in {found['same_choices']} of {found['steps']} steps")
    errors = f"off by at most {found['max_abs']:.2g} ({found['max_abs'] / found['largest']:.2g} of the largest)"
    report.text(f"  scores {errors}, SNR at least {found['lowest_snr']:.1f} dB")
    verdict = "agrees: no more than rounding does" if found["agrees"] else "diverges: more than rounding does"
    report.text(f"  noise floor {found['noise_floor']:.2g}; verdict: {verdict}")
