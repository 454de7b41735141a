"""What session options change of a model before it is read: sizes of symbolic dims, values of initializers."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import BadArgument, hint_for
from assay.ir.dtypes import Array

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class Edits:
    """Sizes by the names of dims and by their denotations, arrays by the names of initializers."""

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    denoted: Mapping[str, int] = field(default_factory=dict[str, int])
    initializers: Mapping[str, Array] = field(default_factory=dict[str, Array])

    def __bool__(self) -> bool:
        return bool(self.sizes or self.denoted or self.initializers)

    def apply(self, model: onnx.ModelProto) -> None:
        """Change `model`. What it does not have is warned of; BadArgument names an array that does not fit."""
        dims = [dim for info in _infos(model.graph) for dim in _dims(info.type)]
        _fix(dims, "dim_param", self.sizes, "symbolic dim")
        _fix(dims, "denotation", self.denoted, "dim denoted")
        known = {tensor.name: tensor for tensor in model.graph.initializer}
        _warn_of_unknown("initializer", self.initializers, known)
        for name, array in self.initializers.items():
            if name in known:
                _replace(known[name], array)


NO_EDITS = Edits()


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def _dims(kind: onnx.TypeProto) -> Iterator[Any]:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(kind, which).shape.dim
    elif which in ("sequence_type", "optional_type"):
        yield from _dims(getattr(kind, which).elem_type)


def _fix(dims: list[Any], key: str, sizes: Mapping[str, int], what: str) -> None:
    _warn_of_unknown(what, sizes, {getattr(dim, key) for dim in dims if getattr(dim, key)})
    for dim in dims:
        size = sizes.get(getattr(dim, key))
        if size is not None:
            dim.dim_value = size


def _warn_of_unknown(what: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            hint = hint_for(name, sorted(known))
            warnings.warn(f"the model has no {what} '{name}'{': ' if hint else ''}{hint}", stacklevel=4)


def _replace(tensor: onnx.TensorProto, array: Array) -> None:
    from onnx import numpy_helper

    given = numpy_helper.from_array(array, tensor.name)
    if (given.data_type, list(given.dims)) != (tensor.data_type, list(tensor.dims)):
        raise BadArgument(f"the initializer '{tensor.name}' has another dtype or shape than {array.dtype}{array.shape}")
    tensor.CopyFrom(given)
