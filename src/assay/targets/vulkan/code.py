"""Kernels as code: typed values with Python's operators, variables, loops and branches as `with`.

What is computed becomes SPIR-V, instruction by instruction, in the order in which it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from assay.targets.vulkan.profile import Profile
from assay.targets.vulkan.spirv import WIDTHS, Ext, Module, Op, StorageClass

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


class ShaderValue:
    """A value of a kernel, known when it runs."""

    __slots__ = ("id", "kind", "shader")

    def __init__(self, shader: KernelCode, number: int, kind: str) -> None:
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

    def __init__(self, shader: KernelCode, kind: str, start: Number) -> None:
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

    def __init__(self, shader: KernelCode, variable: int, storage: StorageClass, kind: str) -> None:
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


class KernelCode:
    """The code of a kernel under construction."""

    def __init__(self, module: Module, profile: Profile) -> None:
        self.module, self.profile = module, profile
        self.exact = True
        """Whether each float operation is rounded by itself; sums of products may do without."""

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
        sides = [self.value(a, kind), self.value(b, "u32" if shift else kind)]
        if sign == "/" and kind == "u32":
            return self.quotient(*sides)
        if kind[0] != "f" or not self.exact:
            return self.made(op, kind, *sides)
        made = self.made(op, kind, *map(self.veiled, sides))
        self.module.exact(made.id)
        return made

    def quotient(self, a: ShaderValue, b: ShaderValue) -> ShaderValue:
        """The whole part of a / b, both u32. Of b = 0 nothing is promised."""
        return self.made(Op.UDiv, "u32", a, b)

    def veiled(self, value: ShaderValue) -> ShaderValue:
        """A number; if it is the float 0, one that the driver cannot know: lavapipe takes x · 0, x / 0 and 0 / x for
        0 and x + 0 for x, whatever x is."""
        for zero, sign in ((0.0, 0), (-0.0, 1)) if value.kind[0] == "f" else ():
            if value.id == self.module.constant(value.kind, zero):
                kind, width = f"u{value.kind[1:]}", WIDTHS[value.kind]
                return self.bitcast(self.cast(self.unknown_zero(), kind) | (sign << width - 1), value.kind)
        return value

    def unknown_zero(self) -> ShaderValue:
        """A u32 that is always 0, which no driver can know."""
        raise NotImplementedError

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
