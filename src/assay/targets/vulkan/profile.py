"""What a device can do, as data: kernels are built for a profile, and a profile can be made poorer than the device.

`ASSAY_VULKAN_RESTRICT` takes words such as `no-f64,no-subgroups,groups=16`: what devices lack that are not at hand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from assay.errors import BadArgument, hint_for
from assay.ir import dtypes
from assay.ir.dtypes import DType

_QUAD = 4
RESTRICT = "ASSAY_VULKAN_RESTRICT"


@dataclass(frozen=True, slots=True)
class Profile:
    """A device as kernels and the runtime see it."""

    name: str
    driver: str
    identity: str
    """Stands for the device and its driver: what was compiled for one identity is good for it alone."""
    kind: str
    """cpu, integrated, discrete, virtual or other."""
    f64: bool
    i64: bool
    bytes8: bool
    bytes16: bool
    """Whether storage may be read and written in such pieces."""
    addresses: bool
    """Whether kernels get at memory by its address, else through descriptors."""
    addresses_allowed: bool
    """Whether they could, where a descriptor does not reach far enough."""
    texels: bool
    """Whether kernels best read large operands as texels; not those that get at memory by its address."""
    subgroup: int
    """How many invocations run in step, and how many work on one line together."""
    subgroup_sized: bool
    """Whether a kernel can demand subgroups of that size. Where sizes differ and it cannot, nothing relies on them."""
    subgroup_shuffle: bool
    subgroup_broadcast: bool
    keeps_special: frozenset[int]
    """Widths of floats of which zeros' signs, infinities and NaN are kept."""
    push_bytes: int
    storage_range: int
    most_groups: int
    most_invocations: int
    most_rounds: int
    """How often all loops of an invocation may go round."""
    shared_bytes: int
    staged: bool
    """Whether the host cannot reach the device's memory, so that transfers go through a buffer that both reach."""
    timestamp_ns: float
    """Nanoseconds of a tick; 0 where time cannot be told."""

    @property
    def tiles(self) -> bool:
        """Whether it is best at tiles: it reads texels well, and lanes can hand each other what they loaded."""
        return self.texels and not self.addresses and self.subgroup_shuffle and self.subgroup >= _QUAD

    @property
    def divides_slowly(self) -> bool:
        """Whether its lanes divide integers one after the other, as those of processors do."""
        return self.kind == "cpu"

    def lacks(self) -> list[tuple[str, Callable[[DType], bool]]]:
        """Reasons why elements cannot be worked with, each with the dtypes that it is about."""
        found: tuple[tuple[bool, str, Callable[[DType], bool]], ...] = (
            (self.f64, "the device has no f64", lambda dtype: dtype is dtypes.f64),
            (self.i64, "the device has no 64-bit integers", lambda dtype: dtype in (dtypes.i64, dtypes.u64)),
            (self.bytes8, "the device cannot store single bytes", lambda dtype: dtype.numpy.itemsize == 1),
            (self.bytes16, "the device cannot store 16-bit elements", lambda dtype: dtype.numpy.itemsize == 2),
        )
        return [(reason, about) for has, reason, about in found if not has]

    def restricted(self, words: str) -> Profile:
        """The profile without what `words` take away; BadArgument for a word that is none."""
        made = self
        for word in filter(None, (each.strip() for each in words.split(","))):
            name, _, number = word.partition("=")
            if name not in _WORDS or bool(number) != (name in _NUMBERED) or not (number or "1").isdigit():
                known = [f"{each}=N" if each in _NUMBERED else each for each in _WORDS]
                raise BadArgument(f"'{word}' does not restrict a Vulkan device", hint=hint_for(word, known))
            made = _WORDS[name](made, int(number or 0))
        return made


_NUMBERED = frozenset({"subgroup", "push", "range", "groups", "invocations", "rounds"})
_WORDS: Mapping[str, Callable[[Profile, int], Profile]] = {
    "no-f64": lambda p, _: replace(p, f64=False),
    "no-i64": lambda p, _: replace(p, i64=False),
    "no-8bit": lambda p, _: replace(p, bytes8=False),
    "no-16bit": lambda p, _: replace(p, bytes16=False),
    "no-addresses": lambda p, _: replace(p, addresses=False, addresses_allowed=False),
    "addresses": lambda p, _: replace(p, addresses=p.addresses_allowed),
    "texels": lambda p, _: replace(p, texels=True),
    "no-texels": lambda p, _: replace(p, texels=False),
    "bindings": lambda p, _: replace(p, addresses=False),
    "no-subgroups": lambda p, _: replace(p, subgroup_shuffle=False, subgroup_broadcast=False),
    "subgroup": lambda p, n: replace(p, subgroup=n, subgroup_shuffle=False, subgroup_broadcast=False),
    "push": lambda p, n: replace(p, push_bytes=min(p.push_bytes, n)),
    "range": lambda p, n: replace(p, storage_range=min(p.storage_range, n)),
    "groups": lambda p, n: replace(p, most_groups=min(p.most_groups, n)),
    "invocations": lambda p, n: replace(p, most_invocations=min(p.most_invocations, n)),
    "rounds": lambda p, n: replace(p, most_rounds=min(p.most_rounds, n)),
    "discrete": lambda p, _: replace(p, kind="discrete", texels=False),
    "staged": lambda p, _: replace(p, staged=True),
}


def restriction(environment: Mapping[str, str] = os.environ) -> str:
    """What the user takes away from the device."""
    return environment.get(RESTRICT, "")
