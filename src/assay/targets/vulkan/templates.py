"""Templates: kernels as the planner knows them. A device's profile makes SPIR-V of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.ir.dtypes import DType
from assay.targets.shared.artifacts import Kernel
from assay.targets.vulkan.arguments import KernelArguments
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.shader import Shader

_LOCAL = 64
"""Invocations of a workgroup in kernels that work item by item."""
_TEXEL = 4
"""Bytes of an element that is read as a texel, or a part of one."""
_EACH = {"cpu": 16}
"""About how many items an invocation of a straight kernel takes, by the kind of device: those that loop well take
many."""

Write = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Template(Kernel):
    """A kernel: a function that writes it, and what that is told. Its `source` is the text of both.

    In a kernel `by_group` a workgroup of the subgroup's size works on an item, in others an invocation does. The first
    two numbers of each are the rows and the columns of its grid, in grains.
    """

    write: Write = field(compare=False, kw_only=True)
    parameters: tuple[tuple[str, Any], ...] = field(compare=False, default=())
    operands: tuple[DType, ...] = ()
    numbers: int = 0
    by_group: bool = False
    lane_columns: int = 0
    """Columns of the grid that each lane of a workgroup takes: a grain of as many subgroups. 0: the step says it."""
    height: int = 1
    """Rows of the grid that a workgroup takes. If they are several, the first number says how many belong together:
    no workgroup takes rows of two matrices."""
    invocations: int = 0
    """Those of a workgroup of a kernel `by_group`. 0: those of a subgroup."""
    texels: tuple[int, ...] = ()
    """For the first operands, of how many elements the texels are as which they are read where that is best."""
    gridded: bool = False
    """Whether the first two numbers are the rows and columns of workgroups, whatever part of the grid each takes."""
    straight: bool = False
    """Whether no item takes a loop."""

    def local_size(self, profile: Profile) -> int:
        """The invocations of a workgroup."""
        if self.by_group:
            return self.invocations or profile.subgroup
        return min(_LOCAL, profile.most_invocations)

    def fetched(self, profile: Profile) -> tuple[int, ...]:
        """For the first operands, the elements of the texels as which they are read on a device."""
        if not profile.texels or profile.addresses:
            return ()
        return tuple(
            elements if dtype.numpy.itemsize == _TEXEL else 0
            for dtype, elements in zip(self.operands, self.texels, strict=False)
        )

    def arguments(self, profile: Profile) -> KernelArguments:
        """How the kernel is told its operands and numbers."""
        return KernelArguments(len(self.operands), self.numbers + 2, profile.addresses, profile.push_bytes)

    def tiles(self, profile: Profile, rows: int, cols: int, col_grain: int, numbers: Sequence[int]) -> tuple[int, int]:
        """The grid in grains."""
        if not self.by_group:
            return rows, cols
        if self.gridded:
            return numbers[0], numbers[1]
        together = numbers[0] if self.height > 1 else 1
        down = rows // max(together, 1) * -(-together // self.height)
        return down, -(-cols // (self.lane_columns * profile.subgroup or col_grain))

    def built(self, profile: Profile) -> bytes:
        """The kernel as SPIR-V."""
        shader = Shader(profile, self.operands, self.numbers + 2, self.local_size(profile), self.fetched(profile))
        self.write(shader, **dict(self.parameters))
        return shader.finish()

    def groups(self, profile: Profile, items: int) -> int:
        """How many workgroups to start for so many items."""
        if not self.by_group:
            each = _EACH.get(profile.kind, 2) if self.straight else 1
            items = -(-items // (self.local_size(profile) * each))
        return max(1, min(items, profile.most_groups))


def template(
    write: Write,
    operands: Sequence[DType],
    numbers: int,
    *,
    by_group: bool = False,
    lane_columns: int = 0,
    height: int = 1,
    invocations: int = 0,
    texels: tuple[int, ...] = (),
    gridded: bool = False,
    straight: bool = False,
    **parameters: Any,
) -> Template:
    """The kernel that `write` makes of these parameters, which have a text each that says all of them.

    A `height` other than 1 is a parameter, too.
    """
    if height > 1:
        parameters["height"] = height
    kinds = " ".join(dtype.name for dtype in operands)
    told = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    source = f"{write.__module__}.{write.__qualname__}({told}) on {kinds} with {numbers}"
    pairs = tuple(parameters.items())
    shape = (by_group, lane_columns, height, invocations, texels, gridded, straight)
    return Template(source, write.__name__, pairs, tuple(operands), numbers, *shape, write=write)
