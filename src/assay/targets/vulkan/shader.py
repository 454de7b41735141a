"""The language that kernels are written in: typed values with Python's operators, loops and branches as `with`.

A kernel is a Python function that is given a `Shader` and calls it; what it does becomes SPIR-V. Kernels read and
write `TensorOperand`s by the index of an element and read `number`s, which are u32. How these reach the device
(addresses or descriptors, push constants or a buffer) is `KernelArguments`' business.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from assay.ir import dtypes
from assay.ir.dtypes import DType
from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.spirv import WIDTHS, Builtin, Capability, Ext, Module, Op, StorageClass

Number: TypeAlias = "ShaderValue | int | float | bool"

_ARITHMETIC = {
    "+": (Op.FAdd, Op.IAdd, Op.IAdd),
    "-": (Op.FSub, Op.ISub, Op.ISub),
    "*": (Op.FMul, Op.IMul, Op.IMul),
    "/": (Op.FDiv, Op.SDiv, Op.UDiv),
    "%": (None, None, Op.UMod),
    "&": (None, Op.BitwiseAnd, Op.BitwiseAnd),
    "|": (None, Op.BitwiseOr, Op.BitwiseOr),
    "^": (None, Op.BitwiseXor, Op.BitwiseXor),
    "<<": (None, Op.ShiftLeftLogical, Op.ShiftLeftLogical),
    ">>": (None, Op.ShiftRightArithmetic, Op.ShiftRightLogical),
}
_LOGIC = {"&": Op.LogicalAnd, "|": Op.LogicalOr, "^": Op.LogicalNotEqual}
_COMPARISONS = {
    "<": (Op.FOrdLessThan, Op.SLessThan, Op.ULessThan),
    "<=": (Op.FOrdLessThanEqual, Op.SLessThanEqual, Op.ULessThanEqual),
    ">": (Op.FOrdGreaterThan, Op.SGreaterThan, Op.UGreaterThan),
    ">=": (Op.FOrdGreaterThanEqual, Op.SGreaterThanEqual, Op.UGreaterThanEqual),
    "==": (Op.FOrdEqual, Op.IEqual, Op.IEqual),
    "!=": (Op.FUnordNotEqual, Op.INotEqual, Op.INotEqual),
}
_COLUMN = {"f": 0, "i": 1, "u": 2}

# --- dtypes


_STORED: dict[DType, str] = {dtypes.f16: "u16", dtypes.bf16: "u16", dtypes.boolean: "u8"}
_COMPUTED: dict[DType, str] = {
    dtypes.f16: "f32",
    dtypes.bf16: "f32",
    dtypes.boolean: "bool",
    **dict.fromkeys((*dtypes.TINY_FLOATS, *dtypes.TINY_INTEGERS), "u32"),
}


def stored_kind(dtype: DType) -> str:
    """The type of an element in memory."""
    return _STORED.get(dtype) or (dtype.name if dtype.name in WIDTHS else f"u{8 * dtype.numpy.itemsize}")


def computed_kind(dtype: DType) -> str:
    """The type of a value that is computed with: 32 bits at least."""
    if dtype in _COMPUTED:
        return _COMPUTED[dtype]
    if dtype.is_integer and dtype.bits < 32:
        return "i32" if dtype.kind == "int" else "u32"
    return stored_kind(dtype)


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """How what a kernel is told lies in memory: places of operands, then numbers; as push constants if they fit."""

    operands: int
    numbers: int
    addresses: bool
    push_bytes: int

    @property
    def size(self) -> int:
        """The bytes of all."""
        return self.operands * (8 if self.addresses else 4) + self.numbers * 4

    @property
    def direct(self) -> bool:
        """Whether they are push constants; else a buffer holds them."""
        return self.size <= self.push_bytes

    @property
    def pushed(self) -> int:
        """The bytes of the push constants: all, or the address of the buffer."""
        return self.size if self.direct else 8 if self.addresses else 0

    @property
    def bindings(self) -> int:
        """The number of descriptors: one an operand, and one for the buffer of arguments."""
        return 0 if self.addresses else self.operands + (0 if self.direct else 1)

    def packed(self, places: Sequence[int], numbers: Sequence[int]) -> bytes:
        """The bytes for these addresses, or offsets in elements, and numbers."""
        letter = "Q" if self.addresses else "I"
        whole = [number & 0xFFFFFFFF for number in numbers]
        return packing.pack(f"<{self.operands}{letter}{self.numbers}I", *places, *whole)


class ShaderValue:
    """A value of a kernel, known when it runs."""

    __slots__ = ("id", "kind", "shader")

    def __init__(self, shader: Shader, number: int, kind: str) -> None:
        self.shader, self.id, self.kind = shader, number, kind

    def __add__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("+", self, other)

    def __radd__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("+", other, self)

    def __sub__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("-", self, other)

    def __rsub__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("-", other, self)

    def __mul__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("*", self, other)

    def __rmul__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("*", other, self)

    def __truediv__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("/", self, other)

    def __rtruediv__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("/", other, self)

    def __mod__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("%", self, other)

    def __and__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("&", self, other)

    def __or__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("|", self, other)

    def __xor__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("^", self, other)

    def __lshift__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic("<<", self, other)

    def __rshift__(self, other: Number) -> ShaderValue:
        return self.shader.arithmetic(">>", self, other)

    def __lt__(self, other: Number) -> ShaderValue:
        return self.shader.comparison("<", self, other)

    def __le__(self, other: Number) -> ShaderValue:
        return self.shader.comparison("<=", self, other)

    def __gt__(self, other: Number) -> ShaderValue:
        return self.shader.comparison(">", self, other)

    def __ge__(self, other: Number) -> ShaderValue:
        return self.shader.comparison(">=", self, other)

    def equals(self, other: Number) -> ShaderValue:
        """Whether both are the same number."""
        return self.shader.comparison("==", self, other)

    def differs(self, other: Number) -> ShaderValue:
        """Whether they are not."""
        return self.shader.comparison("!=", self, other)

    def __neg__(self) -> ShaderValue:
        op = Op.FNegate if self.kind[0] == "f" else Op.SNegate
        return self.shader.made(op, self.kind, self)

    def __invert__(self) -> ShaderValue:
        return self.shader.made(Op.LogicalNot if self.kind == "bool" else Op.Not, self.kind, self)

    def __bool__(self) -> bool:
        raise TypeError("a value of a kernel is known only when it runs: use `when` or `select`")


def _kind_of(a: Number, b: Number) -> str:
    """The kind of the one that is a value."""
    found = a if isinstance(a, ShaderValue) else b
    assert isinstance(found, ShaderValue)
    return found.kind


class Variable:
    """A value of a kernel that changes."""

    __slots__ = ("_id", "_kind", "_shader")

    def __init__(self, shader: Shader, kind: str, start: Number) -> None:
        self._shader, self._kind, self._id = shader, kind, shader.module.local(kind)
        self.set(start)

    def get(self) -> ShaderValue:
        """What it holds now."""
        kind = self._shader.module.type(self._kind)
        return ShaderValue(self._shader, self._shader.module.emit(Op.Load, kind, self._id), self._kind)

    def set(self, value: Number) -> None:
        """Give it another value."""
        self._shader.module.do(Op.Store, self._id, self._shader.value(value, self._kind).id)

    def add(self, value: Number) -> None:
        """Add to it."""
        self.set(self.get() + value)


class LookupTable:
    """Numbers by index, of the invocation or of its workgroup."""

    def __init__(self, shader: Shader, variable: int, storage: StorageClass, kind: str) -> None:
        self._shader, self._id, self._storage, self._kind = shader, variable, storage, kind

    def _place(self, index: Number) -> int:
        module = self._shader.module
        pointer = module.pointer(self._storage, module.type(self._kind))
        return module.emit(Op.AccessChain, pointer, self._id, self._shader.value(index, "u32").id)

    def load(self, index: Number) -> ShaderValue:
        """The number at an index."""
        module = self._shader.module
        return ShaderValue(self._shader, module.emit(Op.Load, module.type(self._kind), self._place(index)), self._kind)

    def store(self, index: Number, value: ShaderValue) -> None:
        """Put a number there."""
        self._shader.module.do(Op.Store, self._place(index), value.id)


class TensorOperand:
    """A tensor in memory, as elements of a dtype in a row."""

    def __init__(self, shader: Shader, index: int, dtype: DType) -> None:
        self.shader, self.dtype = shader, dtype
        self.kind, self._stored = computed_kind(dtype), stored_kind(dtype)
        module = shader.module
        if shader.arguments.addresses:
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
        module = self.shader.module
        kind = module.type(self._stored)
        return ShaderValue(self.shader, module.emit(Op.Load, kind, self._place(index), *self._access()), self._stored)

    def put_bits(self, index: Number, value: ShaderValue) -> None:
        """Put an element there as it is."""
        self.shader.module.do(Op.Store, self._place(index), value.id, *self._access())

    def load(self, index: Number) -> ShaderValue:
        """An element as a value that is computed with."""
        return widened(self.shader, self.bits(index), self.dtype)

    def store(self, index: Number, value: ShaderValue) -> None:
        """Put a value there, which `rounded` has made one of the dtype."""
        self.put_bits(index, narrowed(self.shader, value, self.dtype))


class Shader:
    """A kernel under construction."""

    def __init__(self, profile: Profile, operands: Sequence[DType], numbers: int, local_size: int) -> None:
        self.profile, self.local_size = profile, local_size
        self.module = Module(local_size, addresses=profile.addresses, keeps_special=profile.keeps_special)
        self.exact = True
        """Whether each float operation is rounded by itself; sums of products may do without."""
        self.arguments = KernelArguments(len(operands), numbers, profile.addresses, profile.push_bytes)
        self._held = self._argument_memory()
        self.operands = [TensorOperand(self, index, dtype) for index, dtype in enumerate(operands)]

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
            return self._pushed(self._held, module.type("u32"), index)
        word = index + (arguments.operands if arguments.addresses else 0)
        return self._word(word)

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

    # --- values

    def value(self, number: Number, kind: str) -> ShaderValue:
        """A number as a value of a type."""
        if isinstance(number, ShaderValue):
            assert number.kind == kind, f"{number.kind} is no {kind}"
            return number
        return ShaderValue(self, self.module.constant(kind, number), kind)

    def made(self, op: Op, kind: str, *values: ShaderValue) -> ShaderValue:
        """The result of an instruction."""
        return ShaderValue(self, self.module.emit(op, self.module.type(kind), *(each.id for each in values)), kind)

    def arithmetic(self, sign: str, a: Number, b: Number) -> ShaderValue:
        """Two values of one type."""
        kind = _kind_of(a, b)
        op = _LOGIC[sign] if kind == "bool" else _ARITHMETIC[sign][_COLUMN[kind[0]]]
        assert op is not None, f"{sign} of {kind}"
        shift = isinstance(b, int) and sign in ("<<", ">>")
        made = self.made(op, kind, self.value(a, kind), self.value(b, "u32" if shift else kind))
        if kind[0] == "f" and self.exact:
            self.module.exact(made.id)
        return made

    def comparison(self, sign: str, a: ShaderValue, b: Number) -> ShaderValue:
        """Two values of one type compared; NaN differs from everything."""
        if a.kind == "bool":
            op = {"==": Op.LogicalEqual, "!=": Op.LogicalNotEqual}[sign]
        else:
            op = _COMPARISONS[sign][_COLUMN[a.kind[0]]]
        return self.made(op, "bool", a, self.value(b, a.kind))

    def select(self, condition: ShaderValue, yes: Number, no: Number) -> ShaderValue:
        """One of two values; both are computed."""
        kind = _kind_of(yes, no)
        return self.made(Op.Select, kind, condition, self.value(yes, kind), self.value(no, kind))

    def cast(self, value: ShaderValue, kind: str) -> ShaderValue:
        """A number as one of another type: integers by their lowest bits, floats that must fit in."""
        source = value.kind
        if source == kind:
            return value
        if source == "bool":
            return self.select(value, self.value(1, kind), self.value(0, kind))
        if kind == "bool":
            return value.differs(0)
        if source[0] == "f" and kind[0] == "f":
            return self.made(Op.FConvert, kind, value)
        if kind[0] == "f":
            return self.made(Op.ConvertSToF if source[0] == "i" else Op.ConvertUToF, kind, value)
        if source[0] == "f":
            return self.made(Op.ConvertFToS if kind[0] == "i" else Op.ConvertFToU, kind, value)
        if WIDTHS[source] == WIDTHS[kind]:
            return self.bitcast(value, kind)
        if source[0] == "i" and WIDTHS[kind] == 64:
            return self.bitcast(self._extended(value), kind)
        same = source[0] + kind[1:]
        resized = self.made(Op.SConvert if source[0] == "i" else Op.UConvert, same, value)
        return resized if same == kind else self.bitcast(resized, kind)

    def _extended(self, value: ShaderValue) -> ShaderValue:
        """A signed integer in 64 bits. Mesa 22 takes the sign of what SConvert makes of it for a digit."""
        low = self.cast(self.bitcast(self.cast(value, "i32"), "u32"), "u64")
        return (low ^ (1 << 31)) - (1 << 31)

    def bitcast(self, value: ShaderValue, kind: str) -> ShaderValue:
        """The same bits as another type."""
        return value if value.kind == kind else self.made(Op.Bitcast, kind, value)

    def call(self, function: Ext, *values: ShaderValue) -> ShaderValue:
        """An exact function of GLSL's library."""
        kind = values[0].kind
        return ShaderValue(self, self.module.library(function, self.module.type(kind), *(v.id for v in values)), kind)

    def is_nan(self, value: ShaderValue) -> ShaderValue:
        """Whether it is no number."""
        return self.made(Op.IsNan, "bool", value)

    def least(self, a: ShaderValue, b: Number) -> ShaderValue:
        """The smaller of two integers."""
        return self.select(a < b, a, b)

    def greatest(self, a: ShaderValue, b: Number) -> ShaderValue:
        """The larger of two integers."""
        return self.select(a > b, a, b)

    def high_product(self, a: ShaderValue, b: ShaderValue) -> ShaderValue:
        """The upper half of a product of u32."""
        module = self.module
        both = module.emit(Op.UMulExtended, module.pair("u32"), a.id, b.id)
        return ShaderValue(self, module.emit(Op.CompositeExtract, module.type("u32"), both, 1), "u32")

    # --- memory of its own

    def variable(self, kind: str, start: Number) -> Variable:
        """A variable of the invocation."""
        return Variable(self, kind, start)

    def local_table(self, kind: str, count: int) -> LookupTable:
        """Numbers of the invocation."""
        return LookupTable(self, self.module.local_array(kind, count), StorageClass.FUNCTION, kind)

    def shared_table(self, kind: str, count: int) -> LookupTable:
        """Numbers of the workgroup."""
        return LookupTable(self, self.module.shared(kind, count), StorageClass.WORKGROUP, kind)

    def barrier(self) -> None:
        """Invocations of a workgroup wait for each other and see what they wrote to shared tables."""
        two, semantics = self.value(2, "u32").id, self.value(0x108, "u32").id
        self.module.do(Op.ControlBarrier, two, two, semantics)

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

    # --- the order of things

    @contextmanager
    def when(self, condition: ShaderValue) -> Generator[None]:
        """What is done only if a condition holds."""
        module = self.module
        inside, after = module.fresh(), module.fresh()
        module.do(Op.SelectionMerge, after, 0)
        module.do(Op.BranchConditional, condition.id, inside, after)
        module.do(Op.Label, inside)
        yield
        module.do(Op.Branch, after)
        module.do(Op.Label, after)

    @contextmanager
    def loop(self, start: Number, stop: Number, step: Number = 1) -> Generator[ShaderValue]:
        """Counting up in u32 from `start`, `stop` not included."""
        counter = self.variable("u32", start)
        with self.looping(lambda: counter.get() < stop):
            value = counter.get()
            yield value
            counter.set(value + step)

    @contextmanager
    def looping(self, condition: Callable[[], ShaderValue]) -> Generator[None]:
        """What is done as long as a condition holds, which is computed each time."""
        module = self.module
        header, test, body, again, after = (module.fresh() for _ in range(5))
        module.do(Op.Branch, header)
        module.do(Op.Label, header)
        module.do(Op.LoopMerge, after, again, 0)
        module.do(Op.Branch, test)
        module.do(Op.Label, test)
        module.do(Op.BranchConditional, condition().id, body, after)
        module.do(Op.Label, body)
        yield
        module.do(Op.Branch, again)
        module.do(Op.Label, again)
        module.do(Op.Branch, header)
        module.do(Op.Label, after)

    # --- lanes together

    def broadcast(self, value: ShaderValue, lane: int) -> ShaderValue:
        """The value of one lane of the subgroup for all."""
        self.module.need(Capability.SUBGROUPS, Capability.SUBGROUP_BALLOT)
        scope, which = self.value(3, "u32"), self.value(lane, "u32")
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


# --- between memory and values


def widened(s: Shader, bits: ShaderValue, dtype: DType) -> ShaderValue:
    """An element as a value that is computed with."""
    kind = computed_kind(dtype)
    if dtype is dtypes.bf16:
        return s.bitcast(s.cast(bits, "u32") << 16, "f32")
    if dtype is dtypes.f16:
        return _f16_to_f32(s, s.cast(bits, "u32"))
    return s.cast(bits, kind)


def narrowed(s: Shader, value: ShaderValue, dtype: DType) -> ShaderValue:
    """A value that is one of the dtype as it lies in memory."""
    if dtype is dtypes.bf16:
        return s.cast(bf16_bits(s, value), "u16")
    if dtype is dtypes.f16:
        return s.cast(f16_bits(s, value), "u16")
    return s.cast(value, stored_kind(dtype))


def _f16_to_f32(s: Shader, half: ShaderValue) -> ShaderValue:
    shifted = (half & 0x7FFF) << 13
    exponent = shifted & 0x0F800000
    moved = shifted + (112 << 23)
    special = s.select(exponent.equals(0x0F800000), moved + (112 << 23), moved)
    tiny = s.bitcast(s.bitcast(moved + (1 << 23), "f32") - 2.0**-14, "u32")
    found = s.select(exponent.equals(0), tiny, special)
    return s.bitcast(found | (half & 0x8000) << 16, "f32")


def f16_bits(s: Shader, value: ShaderValue) -> ShaderValue:
    """An f32 rounded to f16, ties to even, as bits in a u32."""
    whole = s.bitcast(value, "u32")
    sign, size = (whole >> 16) & 0x8000, whole & 0x7FFFFFFF
    tiny = s.bitcast(s.bitcast(size, "f32") + 0.5, "u32") - 0x3F000000
    usual = (size - (112 << 23) + 0xFFF + (size >> 13 & 1)) >> 13
    beyond = s.select(size > 0x7F800000, s.value(0x7E00, "u32"), s.value(0x7C00, "u32"))
    found = s.select(size >= 143 << 23, beyond, s.select(size < 113 << 23, tiny, usual))
    return found | sign


def bf16_bits(s: Shader, value: ShaderValue) -> ShaderValue:
    """An f32 rounded to bf16, ties to even, as bits in a u32."""
    whole = s.bitcast(value, "u32")
    rounded = (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    nan = (whole >> 16 & 0x8000) | 0x7FC0
    return s.select((whole & 0x7FFFFFFF) > 0x7F800000, nan, rounded)


def rounded(s: Shader, value: ShaderValue, dtype: DType) -> ShaderValue:
    """A float, as it was computed, as a number that the dtype holds."""
    if dtype is dtypes.bf16:
        return s.bitcast(bf16_bits(s, value) << 16, "f32")
    if dtype is dtypes.f16:
        return _f16_to_f32(s, f16_bits(s, value))
    return value
