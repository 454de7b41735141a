"""The language that kernels are written in: code over operands and numbers that the kernel is given.

A kernel is a Python function that is given a `Shader` and calls it; what it does becomes SPIR-V. Kernels read and
write `TensorOperand`s by the index of an element and read `number`s, which are u32. How these reach the device
(addresses or descriptors, push constants or a buffer) is `KernelArguments`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from assay.ir.dtypes import DType
from assay.targets.vulkan.arguments import KernelArguments
from assay.targets.vulkan.code import KernelCode, LookupTable, Number, ShaderValue
from assay.targets.vulkan.division import quotient, reciprocal
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.spirv import WIDTHS, Builtin, Capability, Module, Op, StorageClass
from assay.targets.vulkan.storage import computed_kind, narrowed, stored_kind, widened

_QUAD = 4


class TensorOperand:
    """A tensor in memory, as elements of a dtype in a row; read as `texels` of so many elements, or as it is if 0."""

    def __init__(self, shader: Shader, index: int, dtype: DType, texels: int = 0) -> None:
        self.shader, self.dtype, self._texels = shader, dtype, texels
        self.kind, self._stored = computed_kind(dtype), stored_kind(dtype)
        module = shader.module
        if texels:
            assert WIDTHS[self._stored] == 32
            self._base, self._image = module.texels(index)
            self._storage, self._offset = StorageClass.TEXELS, shader.argument(index)
        elif shader.arguments.addresses:
            self._storage, self._offset = StorageClass.ADDRESS, None
            self._base = shader.address(index, self._stored)
        else:
            self._storage, self._base = StorageClass.BUFFER, module.binding(self._stored, index)
            self._offset = shader.argument(index)

    def _place(self, index: Number) -> int:
        shader, module = self.shader, self.shader.module
        place = shader.value(index, "u32")
        if self._offset is not None:
            place = self._offset + place
        pointer = module.pointer(self._storage, module.type(self._stored))
        return module.emit(Op.AccessChain, pointer, self._base, module.constant("u32", 0), place.id)

    def _access(self) -> tuple[int, ...]:
        return (2, WIDTHS[self._stored] // 8) if self._storage is StorageClass.ADDRESS else ()

    def bits(self, index: Number) -> ShaderValue:
        """An element as it lies in memory."""
        if self._texels:
            return self._fetched(index, 1)[0]
        module = self.shader.module
        kind = module.type(self._stored)
        return ShaderValue(self.shader, module.emit(Op.Load, kind, self._place(index), *self._access()), self._stored)

    def put_bits(self, index: Number, value: ShaderValue) -> None:
        """Put an element there as it is."""
        self.shader.module.do(Op.Store, self._place(index), value.id, *self._access())

    def load(self, index: Number) -> ShaderValue:
        """An element as a value that is computed with."""
        return widened(self.shader, self.bits(index), self.dtype)

    def quad(self, index: ShaderValue) -> list[ShaderValue]:
        """The four elements from an index on, which is a multiple of 4."""
        if self._texels == _QUAD:
            return [widened(self.shader, bits, self.dtype) for bits in self._fetched(index, _QUAD)]
        return [self.load(index + at) for at in range(_QUAD)]

    def _fetched(self, index: Number, count: int) -> list[ShaderValue]:
        """Elements of a texel, as they lie in memory."""
        assert count == self._texels, "texels are read as a whole"
        assert self._offset is not None
        module, place = self.shader.module, self._offset + index
        whole = place >> 2 if count == _QUAD else place
        image = module.emit(Op.Load, self._image, self._base)
        found = module.emit(Op.ImageFetch, module.vector("u32", _QUAD), image, whole.id)
        parts = (module.emit(Op.CompositeExtract, module.type("u32"), found, at) for at in range(count))
        return [self.shader.bitcast(ShaderValue(self.shader, part, "u32"), self._stored) for part in parts]

    def store(self, index: Number, value: ShaderValue) -> None:
        """Put a value there, which `rounded` has made one of the dtype."""
        self.put_bits(index, narrowed(self.shader, value, self.dtype))


class ResultElement(NamedTuple):
    """An element of a result that a kernel has computed, if it is inside of it at all."""

    inside: ShaderValue
    place: ShaderValue
    value: ShaderValue


class Epilogue(NamedTuple):
    """What goes on with elements: a function of their place and value. A `short` one is written out for each."""

    write: Callable[[ShaderValue, ShaderValue], None]
    short: bool


class Shader(KernelCode):
    """A kernel under construction."""

    def __init__(
        self,
        profile: Profile,
        operands: Sequence[DType],
        numbers: int,
        local_size: int,
        texels: Sequence[int] = (),
    ) -> None:
        module = Module(local_size, addresses=profile.addresses, keeps_special=profile.keeps_special)
        super().__init__(module, profile)
        self.local_size = local_size
        self.arguments = KernelArguments(len(operands), numbers, profile.addresses, profile.push_bytes)
        self._told: dict[int, int] = {}
        self._reciprocals: dict[int, ShaderValue] = {}
        with module.at_start():
            self._held = self._argument_memory()
        widths = [*texels, *[0] * (len(operands) - len(texels))]
        self.operands = [
            TensorOperand(self, index, dtype, width)
            for index, (dtype, width) in enumerate(zip(operands, widths, strict=True))
        ]
        self.then: Epilogue | None = None

    # --- what the kernel is told

    def _argument_memory(self) -> int:
        arguments, module = self.arguments, self.module
        if not arguments.direct:
            if not arguments.addresses:
                return module.binding("u32", arguments.operands)
            holder = module.push([module.address_type("u32")], [0])
            return self._pushed(holder, module.address_type("u32"), 0).id
        word = module.type("u32")
        places = [module.type("u64") if arguments.addresses else word] * arguments.operands
        width = 8 if arguments.addresses else 4
        offsets = [width * at for at in range(arguments.operands)]
        offsets += [width * arguments.operands + 4 * at for at in range(arguments.numbers)]
        return module.push([*places, *[word] * arguments.numbers], offsets) if offsets else 0

    def _pushed(self, holder: int, kind: int, member: int) -> ShaderValue:
        module = self.module
        place = module.emit(
            Op.AccessChain, module.pointer(StorageClass.PUSH, kind), holder, module.constant("u32", member)
        )
        return ShaderValue(self, module.emit(Op.Load, kind, place), "u32")

    def argument(self, index: int) -> ShaderValue:
        """The argument at an index, counting operands and numbers alike; of operands, only offsets are arguments."""
        arguments, module = self.arguments, self.module
        if arguments.direct:
            found = self._pushed(self._held, module.type("u32"), index)
        else:
            found = self._word(index + (arguments.operands if arguments.addresses else 0))
        self._told[found.id] = index
        return found

    def _word(self, index: int) -> ShaderValue:
        """A word of the buffer of arguments."""
        module, addresses = self.module, self.arguments.addresses
        storage = StorageClass.ADDRESS if addresses else StorageClass.BUFFER
        zero, at, word = module.constant("u32", 0), module.constant("u32", index), module.type("u32")
        place = module.emit(Op.AccessChain, module.pointer(storage, word), self._held, zero, at)
        return ShaderValue(self, module.emit(Op.Load, word, place, *((2, 4) if addresses else ())), "u32")

    def address(self, index: int, stored: str) -> int:
        """The address of an operand, as one of elements."""
        module = self.module
        if self.arguments.direct:
            place = self._pushed(self._held, module.type("u64"), index)
        else:
            low, high = self._word(2 * index), self._word(2 * index + 1)
            place = self.cast(low, "u64") | self.cast(high, "u64") << 32
        return module.emit(Op.ConvertUToPtr, module.address_type(stored), place.id)

    @property
    def rows(self) -> ShaderValue:
        """The rows of the kernel's grid, in grains."""
        return self.argument(self.arguments.operands)

    @property
    def cols(self) -> ShaderValue:
        """The columns of the kernel's grid, in grains."""
        return self.argument(self.arguments.operands + 1)

    def number(self, index: int) -> ShaderValue:
        """A number that the kernel is told: u32."""
        return self.argument(self.arguments.operands + 2 + index)

    def quotient(self, a: ShaderValue, b: ShaderValue) -> ShaderValue:
        """The whole part of a / b. Where the device divides slowly, numbers that it is told are prepared once."""
        if not self.profile.divides_slowly or self.module.is_constant(b.id):
            return super().quotient(a, b)
        if b.id not in self._told:
            return quotient(a, b, reciprocal(b))
        index = self._told[b.id]
        if index not in self._reciprocals:
            with self.module.at_start():
                self._reciprocals[index] = reciprocal(self.argument(index))
        return quotient(a, b, self._reciprocals[index])

    def unknown_zero(self) -> ShaderValue:
        """The sign of the number of rows: grids have less than 2³¹."""
        return self.rows >> 31

    # --- what the kernel makes

    def hand_on(self, elements: Sequence[ResultElement]) -> None:
        """Put elements of the last operand into memory, or let the epilogue go on with them."""
        if self.then is None or self.then.short:
            for inside, place, value in elements:
                with self.when(inside):
                    self._finish(place, value)
            return
        outside = 0xFFFFFFFF
        places = self.local_table("u32", len(elements))
        values = self.local_table(elements[0].value.kind, len(elements))
        for at, (inside, place, value) in enumerate(elements):
            places.store(at, self.select(inside, place, self.value(outside, "u32")))
            values.store(at, value)
        with self.loop(self.value(0, "u32"), len(elements)) as at:
            place = places.load(at)
            with self.when(place.differs(outside)):
                self._finish(place, values.load(at))

    def _finish(self, place: ShaderValue, value: ShaderValue) -> None:
        if self.then is None:
            self.operands[-1].store(place, value)
            return
        before, self.exact = self.exact, True
        self.then.write(place, value)
        self.exact = before

    # --- who am I

    def _builtin(self, which: Builtin) -> ShaderValue:
        variable, kind = self.module.builtin(which)
        loaded = self.module.emit(Op.Load, kind, variable)
        if which is not Builtin.SUBGROUP_LANE:
            loaded = self.module.emit(Op.CompositeExtract, self.module.type("u32"), loaded, 0)
        return ShaderValue(self, loaded, "u32")

    def lane(self) -> ShaderValue:
        """Which invocation of the workgroup this is; in step with the subgroup where that is the whole workgroup."""
        in_step = self.profile.subgroup_shuffle and self.local_size == self.profile.subgroup
        return self._builtin(Builtin.SUBGROUP_LANE if in_step else Builtin.LANE)

    @contextmanager
    def items(self, count: Number) -> Generator[ShaderValue]:
        """The items that this invocation works on: all invocations share `count` of them."""
        total = self._builtin(Builtin.GROUPS) * self.local_size
        first = self._builtin(Builtin.GROUP) * self.local_size + self._builtin(Builtin.LANE)
        with self.loop(first, count, total) as item:
            yield item

    @contextmanager
    def groups(self, count: Number) -> Generator[ShaderValue]:
        """The items that this workgroup works on: all workgroups share `count` of them."""
        with self.loop(self._builtin(Builtin.GROUP), count, self._builtin(Builtin.GROUPS)) as item:
            yield item

    # --- lanes together

    def shared_table(self, kind: str, count: int) -> LookupTable:
        """Numbers of the workgroup."""
        return LookupTable(self, self.module.shared(kind, count), StorageClass.WORKGROUP, kind)

    def barrier(self) -> None:
        """Invocations of a workgroup wait for each other and see what they wrote to shared tables."""
        two, semantics = self.value(2, "u32").id, self.value(0x108, "u32").id
        self.module.do(Op.ControlBarrier, two, two, semantics)

    def broadcast(self, value: ShaderValue, lane: Number) -> ShaderValue:
        """The value of one lane of the subgroup, the same for all, in every lane."""
        scope, which = self.value(3, "u32"), self.value(lane, "u32")
        if self.profile.subgroup_shuffle:
            self.module.need(Capability.SUBGROUPS, Capability.SUBGROUP_SHUFFLE)
            return self.made(Op.GroupNonUniformShuffle, value.kind, scope, value, which)
        self.module.need(Capability.SUBGROUPS, Capability.SUBGROUP_BALLOT)
        return self.made(Op.GroupNonUniformBroadcast, value.kind, scope, value, which)

    def together(
        self,
        values: Sequence[ShaderValue],
        combine: Callable[[Sequence[ShaderValue], Sequence[ShaderValue]], Sequence[ShaderValue]],
    ) -> list[ShaderValue]:
        """What `combine` makes of the values of all lanes of a workgroup of the subgroup's size, in every lane.

        Every lane must come here.
        """
        found, size = list(values), self.local_size
        assert size & size - 1 == 0
        tables = None if self.profile.subgroup_shuffle else [self.shared_table(each.kind, size) for each in values]
        mask = 1
        while mask < size:
            others = self._shuffled(found, mask) if tables is None else self._exchanged(found, mask, tables)
            found = list(combine(found, others))
            mask *= 2
        return found

    def _shuffled(self, values: Sequence[ShaderValue], mask: int) -> list[ShaderValue]:
        self.module.need(Capability.SUBGROUPS, Capability.SUBGROUP_SHUFFLE)
        scope, which = self.value(3, "u32"), self.value(mask, "u32")
        return [self.made(Op.GroupNonUniformShuffleXor, each.kind, scope, each, which) for each in values]

    def _exchanged(self, values: Sequence[ShaderValue], mask: int, tables: Sequence[LookupTable]) -> list[ShaderValue]:
        lane = self.lane()
        for table, value in zip(tables, values, strict=True):
            table.store(lane, value)
        self.barrier()
        others = [table.load(lane ^ mask) for table in tables]
        self.barrier()
        return others

    def finish(self) -> bytes:
        """The kernel as SPIR-V."""
        return self.module.finish()
