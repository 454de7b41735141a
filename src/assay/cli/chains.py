"""The option `--target`: a chain of targets such as `vulkan,cpu`; `$ASSAY_TARGET` holds where it is not given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from assay.errors import BadArgument, NotFound
from assay.runtime.targets import ENVIRONMENT, check_target, default_target, is_modelled
from assay.targets.base import DEVICE_MODEL

METAVAR = "TARGET[,…]"
DEFAULT = f"(default: ${ENVIRONMENT}, else cpu)"
"""What every help text says of the default."""

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar=METAVAR,
        help=f"Where to run: a target or a chain such as vulkan,cpu; `assay targets` lists them {DEFAULT}.",
    ),
]


def chosen(target: str | None) -> str:
    """The chain that was asked for, else the default one; NotFound if it cannot be used here."""
    if target is not None:
        check_target(target)
        return target
    found = default_target()
    try:
        check_target(found)
    except NotFound as error:
        raise NotFound(error.message, where=f"${ENVIRONMENT}", hint=error.hint) from error
    return found


def check_timed(chain: str, hint: str) -> None:
    """BadArgument if runs on a chain have no times to tell."""
    if is_modelled(chain):
        raise BadArgument(f"there are no times of runs on '{chain}': {DEVICE_MODEL}", hint=hint)


def where_it_ran(chain: str) -> str:
    """The chain, as a report of a run names it; with a device model in it, that is said."""
    return f"{chain} ({DEVICE_MODEL})" if is_modelled(chain) else chain


def chosen_all(targets: Sequence[str] | None) -> list[str]:
    """The chains that were asked for, else the default one alone; NotFound if one cannot be used here."""
    return [chosen(target) for target in targets or (None,)]
