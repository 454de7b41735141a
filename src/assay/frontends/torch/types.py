"""torch's dtypes and symbolic sizes ⇄ ours."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import ml_dtypes
import numpy as np
import torch

from assay.errors import RunFailed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Dim, dim_max, dim_min, floordiv, mod, symbol
from assay.ir.dtypes import Array, DType
from assay.ir.types import TensorType, Type, UnknownType

_DTYPES: dict[torch.dtype, DType] = {
    torch.float64: dtypes.f64,
    torch.float32: dtypes.f32,
    torch.float16: dtypes.f16,
    torch.bfloat16: dtypes.bf16,
    torch.float8_e4m3fn: dtypes.by_name("f8e4m3fn"),
    torch.float8_e4m3fnuz: dtypes.by_name("f8e4m3fnuz"),
    torch.float8_e5m2: dtypes.by_name("f8e5m2"),
    torch.float8_e5m2fnuz: dtypes.by_name("f8e5m2fnuz"),
    torch.float8_e8m0fnu: dtypes.by_name("f8e8m0"),
    torch.int64: dtypes.i64,
    torch.int32: dtypes.i32,
    torch.int16: dtypes.i16,
    torch.int8: dtypes.i8,
    torch.uint64: dtypes.u64,
    torch.uint32: dtypes.u32,
    torch.uint16: dtypes.u16,
    torch.uint8: dtypes.u8,
    torch.bool: dtypes.boolean,
    torch.complex64: dtypes.c64,
    torch.complex128: dtypes.c128,
}
_TORCH = {dtype: theirs for theirs, dtype in _DTYPES.items()}

_CARRIED: dict[torch.dtype, tuple[torch.dtype, Any]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.uint8, ml_dtypes.float8_e5m2fnuz),
    torch.float8_e8m0fnu: (torch.uint8, ml_dtypes.float8_e8m0fnu),
}
"""dtypes that NumPy knows only through ml_dtypes: their bits travel as integers."""


def dtype_of(theirs: torch.dtype) -> DType:
    """Our dtype for torch's; KeyError for quantised and other kinds that we do not carry."""
    return _DTYPES[theirs]


def torch_dtype(dtype: DType) -> torch.dtype:
    """torch's dtype for ours; KeyError if torch has none."""
    return _TORCH[dtype]


def has_array(tensor: torch.Tensor) -> bool:
    """Whether an array can carry the tensor; sparse and quantised ones and complex32 stay torch's own."""
    return tensor.layout is torch.strided and is_carried(tensor.dtype)


def is_carried(theirs: torch.dtype) -> bool:
    """Whether there is a dtype of ours for torch's."""
    return theirs in _DTYPES


def type_of(value: Any) -> Type:
    """The type of what a node's metadata shows: a (fake) tensor, or a number, symbolic or not.

    A tensor that no array can carry has an unknown type: only opaque nodes take it, as the object that it is.
    """
    if isinstance(value, torch.Tensor):
        if not has_array(value):
            return UnknownType()
        return TensorType(dtype_of(value.dtype), tuple(dim_of(size) for size in value.shape))
    if isinstance(value, bool | torch.SymBool):
        return TensorType(dtypes.boolean, ())
    if isinstance(value, int | torch.SymInt):
        return TensorType(dtypes.i64, ())
    if isinstance(value, float | torch.SymFloat):
        return TensorType(dtypes.f64, ())
    raise TypeError(f"no value of ours stands for torch's {type(value).__name__}")


def dim_of(size: Any) -> Dim:
    """A size as a dim: a number, or torch's expression in our algebra."""
    return size if isinstance(size, int) else _from_expression(size.node.expr, size.node.shape_env.var_to_range)


def _from_expression(expression: Any, ranges: Mapping[Any, Any]) -> Dim:
    """torch's symbolic expression (a SymPy tree) as a dim; UNKNOWN for what the algebra has no word for."""
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return symbol(str(expression), *_guarded(ranges.get(expression)))
    rule = _RULES.get(type(expression).__name__)
    return UNKNOWN if rule is None else rule([_from_expression(part, ranges) for part in expression.args])


def _guarded(found: Any) -> tuple[int, int | None]:
    """The range that torch's guards keep a symbol in; of what may be negative, only that it is an integer."""
    if found is None or not found.lower.is_Integer or found.lower < 0:
        return 0, None
    return int(found.lower), int(found.upper) if found.upper.is_Integer else None


def _sum(parts: list[Dim]) -> Dim:
    total: Dim = 0
    for part in parts:
        total = total + part
    return total


def _product(parts: list[Dim]) -> Dim:
    total: Dim = 1
    for part in parts:
        total = total * part
    return total


def _power(parts: list[Dim]) -> Dim:
    base, exponent = parts
    return _product([base] * exponent) if isinstance(exponent, int) and 0 <= exponent <= 8 else UNKNOWN


_RULES: dict[str, Callable[[list[Dim]], Dim]] = {
    "Add": _sum,
    "Mul": _product,
    "Pow": _power,
    "Min": lambda parts: dim_min(*parts),
    "Max": lambda parts: dim_max(*parts),
    "FloorDiv": lambda parts: floordiv(parts[0], parts[1]),
    "CleanDiv": lambda parts: floordiv(parts[0], parts[1]),
    "Mod": lambda parts: mod(parts[0], parts[1]),
    "PythonMod": lambda parts: mod(parts[0], parts[1]),
}
"""By the name of the expression's class, in SymPy or in torch's own additions to it."""


def to_array(tensor: torch.Tensor) -> Array:
    """The content of a CPU tensor, shared where that is possible."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    bits = _CARRIED.get(plain.dtype)
    return plain.numpy() if bits is None else plain.view(bits[0]).numpy().view(bits[1])


def in_order(array: Array, order: Sequence[int] | None) -> Array:
    """The array with its axes in memory in this order, outermost first; None leaves it as it is."""
    if order is None:
        return array
    turned = array.transpose(order)
    return array if turned.flags.c_contiguous else np.ascontiguousarray(turned).transpose(np.argsort(order))


def to_tensor(array: Array) -> torch.Tensor:
    """An array as a tensor that may be written to: shared if the array may be, else a copy."""
    return _shared(array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy(order="K"))


def lent_tensor(array: Array) -> torch.Tensor:
    """An array as a tensor that will only be read, and hence shares the memory even if that is protected."""
    plain = array if min(array.strides, default=0) >= 0 else array.copy()
    return _shared(plain)


def shown_tensor(array: Array) -> torch.Tensor:
    """The tensor whose memory an array shows, at the same place in it: what lies around can be read too."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = cast(Array, owner).base
    if not isinstance(owner, torch.Tensor):
        raise RunFailed("memory around a view is read, and the view was copied on the way")
    tensor = owner.detach().view(torch_dtype(dtypes.of(array)))
    size = tensor.element_size()
    offset = tensor.storage_offset() + (dtypes.address(array) - tensor.data_ptr()) // size
    return tensor.as_strided(array.shape, [stride // size for stride in array.strides], offset)


def _shared(array: Array) -> torch.Tensor:
    found = _TORCH[dtypes.of(array)]
    bits = _CARRIED.get(found)
    plain = array if bits is None else array.view(np.int16 if bits[0] is torch.int16 else np.uint8)
    tensor = cast(Any, torch).from_numpy(plain if plain.flags.writeable else np.asarray(_Unprotected(plain)))
    return tensor if bits is None else tensor.view(found)


class _Unprotected:
    """Protected memory that does not say so: torch has no tensors that cannot be written to."""

    def __init__(self, array: Array) -> None:
        self.array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Generator[None]:
    """Inside, torch makes floats of a dtype where none is said."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)
