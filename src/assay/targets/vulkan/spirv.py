"""SPIR-V modules, word by word: types and constants once each, instructions in the order in which they are emitted.

Types are named as dtypes are: bool, i8 … u64, f32, f64. Integers and floats are single numbers; vectors are used for
built-in values alone.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

_MAGIC, _VERSION = 0x07230203, 0x00010500
WIDTHS = {"u8": 8, "i8": 8, "u16": 16, "i16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64, "f32": 32, "f64": 64}
_PACKED = {"f32": "<f", "f64": "<d", "i64": "<q", "u64": "<Q"}


class Op(IntEnum):
    """Instructions by their numbers."""

    Extension = 10
    ExtInstImport = 11
    ExtInst = 12
    MemoryModel = 14
    EntryPoint = 15
    ExecutionMode = 16
    Capability = 17
    TypeVoid = 19
    TypeBool = 20
    TypeInt = 21
    TypeFloat = 22
    TypeVector = 23
    TypeImage = 25
    TypeArray = 28
    TypeRuntimeArray = 29
    TypeStruct = 30
    TypePointer = 32
    TypeFunction = 33
    ConstantTrue = 41
    ConstantFalse = 42
    Constant = 43
    Function = 54
    FunctionEnd = 56
    Variable = 59
    Load = 61
    Store = 62
    AccessChain = 65
    Decorate = 71
    MemberDecorate = 72
    CompositeExtract = 81
    ImageFetch = 95
    ConvertFToU = 109
    ConvertFToS = 110
    ConvertSToF = 111
    ConvertUToF = 112
    UConvert = 113
    SConvert = 114
    FConvert = 115
    ConvertUToPtr = 120
    Bitcast = 124
    SNegate = 126
    FNegate = 127
    IAdd = 128
    FAdd = 129
    ISub = 130
    FSub = 131
    IMul = 132
    FMul = 133
    UDiv = 134
    SDiv = 135
    FDiv = 136
    UMod = 137
    UMulExtended = 151
    IsNan = 156
    IsInf = 157
    LogicalEqual = 164
    LogicalNotEqual = 165
    LogicalOr = 166
    LogicalAnd = 167
    LogicalNot = 168
    Select = 169
    IEqual = 170
    INotEqual = 171
    UGreaterThan = 172
    SGreaterThan = 173
    UGreaterThanEqual = 174
    SGreaterThanEqual = 175
    ULessThan = 176
    SLessThan = 177
    ULessThanEqual = 178
    SLessThanEqual = 179
    FOrdEqual = 180
    FUnordNotEqual = 183
    FOrdLessThan = 184
    FOrdGreaterThan = 186
    FOrdLessThanEqual = 188
    FOrdGreaterThanEqual = 190
    ShiftRightLogical = 194
    ShiftRightArithmetic = 195
    ShiftLeftLogical = 196
    BitwiseOr = 197
    BitwiseXor = 198
    BitwiseAnd = 199
    Not = 200
    ControlBarrier = 224
    LoopMerge = 246
    SelectionMerge = 247
    Label = 248
    Branch = 249
    BranchConditional = 250
    Return = 253
    GroupNonUniformBroadcast = 337
    GroupNonUniformShuffle = 345
    GroupNonUniformShuffleXor = 346


class Ext(IntEnum):
    """Functions of GLSL.std.450 that are exact, or that rounding makes exact."""

    RoundEven = 2
    Trunc = 3
    FAbs = 4
    Floor = 8
    Ceil = 9
    Sqrt = 31
    Fma = 50


class StorageClass(IntEnum):
    """Where variables lie."""

    TEXELS = 0
    INPUT = 1
    WORKGROUP = 4
    FUNCTION = 7
    PUSH = 9
    BUFFER = 12
    ADDRESS = 5349


class Capability(IntEnum):
    """What a module needs of a device."""

    SHADER = 1
    FLOAT64 = 10
    INT64 = 11
    INT16 = 22
    INT8 = 39
    TEXELS = 46
    SUBGROUPS = 61
    SUBGROUP_BALLOT = 64
    SUBGROUP_SHUFFLE = 65
    STORAGE_16 = 4433
    STORAGE_8 = 4448
    KEEPS_SPECIAL = 4466
    ADDRESSES = 5347


class Builtin(IntEnum):
    """Values that an invocation is given."""

    GROUPS = 24
    GROUP = 26
    LANE = 27
    """Within the workgroup."""
    SUBGROUP_LANE = 41


_NO_CONTRACTION = 42
_BLOCK, _ARRAY_STRIDE, _BUILTIN, _BINDING, _SET, _OFFSET = 2, 6, 11, 33, 34, 35
_INT_CAPABILITIES = {8: Capability.INT8, 16: Capability.INT16, 64: Capability.INT64}
_KEEP_SPECIAL = 4461
_LOCAL_SIZE = 17
_BUFFER_IMAGE, _SAMPLED = 5, 1


def words_of(text: str) -> list[int]:
    """A string as words."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


class Module:
    """A module under construction; `finish` gives its bytes."""

    def __init__(self, local_size: int, *, addresses: bool, keeps_special: Iterable[int] = ()) -> None:
        """`local_size` invocations make a workgroup. Floats of the widths `keeps_special` keep NaN and infinities."""
        self._next = 1
        self._known: dict[Any, int] = {}
        self._constants: set[int] = set()
        self._capabilities: set[int] = {Capability.SHADER}
        self._modes: list[tuple[int, ...]] = []
        self._decorations: list[tuple[int, ...]] = []
        self._globals: list[tuple[int, ...]] = []
        self._locals: list[tuple[int, ...]] = []
        self._start: list[tuple[int, ...]] = []
        self._body: list[tuple[int, ...]] = []
        self._interface: list[int] = []
        self._addresses, self._local_size = addresses, local_size
        self._widths = tuple(keeps_special)
        self._floats: set[int] = set()
        if addresses:
            self._capabilities.add(Capability.ADDRESSES)
        self._library, self.main = self.fresh(), self.fresh()

    def fresh(self) -> int:
        """A number that stands for nothing yet."""
        self._next += 1
        return self._next - 1

    def need(self, *capabilities: Capability) -> None:
        """The device must have these."""
        self._capabilities.update(capabilities)

    # --- types and constants

    def _once(self, key: Any, op: Op, *operands: int) -> int:
        if key not in self._known:
            self._known[key] = made = self.fresh()
            self._globals.append((op, made, *operands))
        return self._known[key]

    def type(self, name: str) -> int:
        """The type of that name."""
        if name in self._known:
            return self._known[name]
        if name == "void":
            return self._once(name, Op.TypeVoid)
        if name == "bool":
            return self._once(name, Op.TypeBool)
        bits = WIDTHS[name]
        if name[0] == "f":
            self._floats.add(bits)
            if bits == 64:
                self.need(Capability.FLOAT64)
            return self._once(name, Op.TypeFloat, bits)
        if bits in _INT_CAPABILITIES:
            self.need(_INT_CAPABILITIES[bits])
        return self._once(name, Op.TypeInt, bits, int(name[0] == "i"))

    def vector(self, name: str, count: int) -> int:
        """The type of some numbers together."""
        return self._once(("vector", name, count), Op.TypeVector, self.type(name), count)

    def pair(self, name: str) -> int:
        """The type of two numbers, each by itself."""
        return self._once(("pair", name), Op.TypeStruct, self.type(name), self.type(name))

    def pointer(self, storage: StorageClass, pointed: int) -> int:
        """The type of pointers to a type."""
        return self._once(("pointer", storage, pointed), Op.TypePointer, storage, pointed)

    def constant(self, name: str, value: float | int | bool) -> int:
        """A number, or a truth value."""
        kind = self.type(name)
        if name == "bool":
            return self._valued((name, bool(value)), Op.ConstantTrue if value else Op.ConstantFalse, kind)
        if name in _PACKED:
            data = struct.pack(_PACKED[name], value)
        else:
            data = (int(value) & 0xFFFFFFFF).to_bytes(4, "little")
        words = struct.unpack(f"<{len(data) // 4}I", data)
        return self._valued((name, words), Op.Constant, kind, *words)

    def is_constant(self, value: int) -> bool:
        """Whether a value is a `constant`."""
        return value in self._constants

    def _valued(self, key: Any, op: Op, kind: int, *operands: int) -> int:
        if key not in self._known:
            self._known[key] = made = self.fresh()
            self._globals.append((op, kind, made, *operands))
            self._constants.add(made)
        return self._known[key]

    # --- memory

    def _elements(self, name: str, storage: StorageClass) -> int:
        """A pointer type to a struct that is nothing but elements, as many as there are."""
        key = ("elements", name, storage)
        if key in self._known:
            return self._known[key]
        if WIDTHS[name] == 8:
            self.need(Capability.STORAGE_8)
        if WIDTHS[name] == 16:
            self.need(Capability.STORAGE_16)
        elements = self._once(("array", name), Op.TypeRuntimeArray, self.type(name))
        holder = self._once(("holder", name), Op.TypeStruct, elements)
        if ("laid out", name) not in self._known:
            self._known["laid out", name] = 0
            self.decorate(elements, _ARRAY_STRIDE, WIDTHS[name] // 8)
            self.decorate(holder, _BLOCK)
            self._decorations.append((Op.MemberDecorate, holder, 0, _OFFSET, 0))
        self._known[key] = made = self.pointer(storage, holder)
        return made

    def binding(self, name: str, index: int) -> int:
        """The storage buffer at a binding, seen as elements of a type."""
        pointer = self._elements(name, StorageClass.BUFFER)
        key = ("binding", index)
        if key not in self._known:
            self._known[key] = self._variable(pointer, StorageClass.BUFFER)
            self.decorate(self._known[key], _SET, 0)
            self.decorate(self._known[key], _BINDING, index)
        return self._known[key]

    def texels(self, index: int) -> tuple[int, int]:
        """The texels at a binding, and their type: u32, one or several of them a texel."""
        self.need(Capability.TEXELS)
        kind = self._once("texels", Op.TypeImage, self.type("u32"), _BUFFER_IMAGE, 0, 0, 0, _SAMPLED, 0)
        made = self._variable(self.pointer(StorageClass.TEXELS, kind), StorageClass.TEXELS)
        self.decorate(made, _SET, 0)
        self.decorate(made, _BINDING, index)
        return made, kind

    def address_type(self, name: str) -> int:
        """The type of addresses of elements."""
        return self._elements(name, StorageClass.ADDRESS)

    def push(self, kinds: Sequence[int], offsets: Sequence[int]) -> int:
        """The variable of the push constants: members of these types at these places."""
        holder = self._once("push", Op.TypeStruct, *kinds)
        self.decorate(holder, _BLOCK)
        for index, offset in enumerate(offsets):
            self._decorations.append((Op.MemberDecorate, holder, index, _OFFSET, offset))
        return self._variable(self.pointer(StorageClass.PUSH, holder), StorageClass.PUSH)

    def shared(self, name: str, count: int) -> int:
        """An array that the invocations of a workgroup share."""
        kind = self._once(("shared", name, count), Op.TypeArray, self.type(name), self.constant("u32", count))
        return self._variable(self.pointer(StorageClass.WORKGROUP, kind), StorageClass.WORKGROUP)

    def local(self, name: str) -> int:
        """A variable of the invocation."""
        made = self.fresh()
        self._locals.append(
            (Op.Variable, self.pointer(StorageClass.FUNCTION, self.type(name)), made, StorageClass.FUNCTION)
        )
        return made

    def local_array(self, name: str, count: int) -> int:
        """An array of the invocation."""
        kind = self._once(("shared", name, count), Op.TypeArray, self.type(name), self.constant("u32", count))
        made = self.fresh()
        self._locals.append((Op.Variable, self.pointer(StorageClass.FUNCTION, kind), made, StorageClass.FUNCTION))
        return made

    def builtin(self, which: Builtin) -> tuple[int, int]:
        """The variable of a built-in value, and its type."""
        if which is Builtin.SUBGROUP_LANE:
            self.need(Capability.SUBGROUPS)
            kind = self.type("u32")
        else:
            kind = self.vector("u32", 3)
        key = ("builtin", which)
        if key not in self._known:
            self._known[key] = self._variable(self.pointer(StorageClass.INPUT, kind), StorageClass.INPUT)
            self.decorate(self._known[key], _BUILTIN, which)
        return self._known[key], kind

    def _variable(self, pointer: int, storage: StorageClass) -> int:
        made = self.fresh()
        self._globals.append((Op.Variable, pointer, made, storage))
        self._interface.append(made)
        return made

    # --- instructions

    def decorate(self, target: int, *words: int) -> None:
        """Say something of a value."""
        self._decorations.append((Op.Decorate, target, *words))

    def exact(self, value: int) -> int:
        """An operation whose result is rounded by itself, not together with the next."""
        self.decorate(value, _NO_CONTRACTION)
        return value

    def emit(self, op: Op, kind: int, *operands: int) -> int:
        """An instruction with a result of a type."""
        made = self.fresh()
        self._body.append((op, kind, made, *operands))
        return made

    def do(self, op: Op, *operands: int) -> None:
        """An instruction without a result."""
        self._body.append((op, *operands))

    @contextmanager
    def at_start(self) -> Generator[None]:
        """Instructions inside run once, before all that are not; they use what was emitted so too."""
        body, self._body = self._body, self._start
        yield
        self._body = body

    def library(self, function: Ext, kind: int, *operands: int) -> int:
        """A function of GLSL.std.450."""
        return self.emit(Op.ExtInst, kind, self._library, function, *operands)

    def finish(self) -> bytes:
        """The module."""
        void = self.type("void")
        function, begin = self._once("main", Op.TypeFunction, void), self.fresh()
        special = sorted(self._floats.intersection(self._widths))
        extensions = ["SPV_KHR_float_controls"] if special else []
        if special:
            self.need(Capability.KEEPS_SPECIAL)
        if self._addresses:
            extensions.append("SPV_KHR_physical_storage_buffer")
        lines: list[Sequence[int]] = [(Op.Capability, each) for each in sorted(self._capabilities)]
        lines += [(Op.Extension, *words_of(each)) for each in extensions]
        lines.append((Op.ExtInstImport, self._library, *words_of("GLSL.std.450")))
        lines.append((Op.MemoryModel, StorageClass.ADDRESS - 1 if self._addresses else 0, 1))
        lines.append((Op.EntryPoint, 5, self.main, *words_of("main"), *self._interface))
        lines.append((Op.ExecutionMode, self.main, _LOCAL_SIZE, self._local_size, 1, 1))
        lines += [(Op.ExecutionMode, self.main, _KEEP_SPECIAL, bits) for bits in special]
        lines += self._decorations
        lines += self._globals
        lines += [(Op.Function, void, self.main, 0, function), (Op.Label, begin)]
        lines += self._locals
        lines += self._start
        lines += self._body
        lines += [(Op.Return,), (Op.FunctionEnd,)]
        words = [_MAGIC, _VERSION, 0, self._next, 0]
        for op, *operands in lines:
            words += [len(operands) + 1 << 16 | op, *operands]
        return struct.pack(f"<{len(words)}I", *words)
