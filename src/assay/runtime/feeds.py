"""Checking what a user feeds: one clear sentence for whatever does not fit."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from assay.errors import BadFeed
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Expr, bounds
from assay.ir.dtypes import Array, DType, read_only
from assay.ir.graph import Graph
from assay.ir.types import MapType, OptionalType, SequenceType, Shape, TensorType, Type
from assay.runtime.device_tensors import DeviceTensor
from assay.targets.grown import GrownTensor


class _Bound:
    """What the inputs so far have told: the sizes of symbols, with the input and axis, and the shapes that fit dims."""

    __slots__ = ("fitting", "sizes")

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, str, int]] = {}
        self.fitting: set[tuple[Shape, tuple[int, ...]]] = set()


class UnequalDims(BadFeed):
    """Dims that have the same name have different sizes."""


def check_feeds(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    """The inputs in the graph's order, as read-only arrays. BadFeed names what is missing, extra or does not fit."""
    if not _is_mapping(feeds):
        raise BadFeed(
            f"feeds are a dictionary, got {type(feeds).__name__}", hint=f"the model takes {_signature(graph)}"
        )
    known = set(graph.input_names)
    for name in feeds:
        if name not in known:
            close = difflib.get_close_matches(name, graph.input_names, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"the model takes {_signature(graph)}"
            raise BadFeed(f"the model has no input '{name}'", hint=hint)
    bound = _Bound()
    checked: list[Any] = []
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        if name not in feeds and not isinstance(value.type, OptionalType):
            raise BadFeed(f"the input '{name}' is missing", hint=f"the model takes {_signature(graph)}")
        checked.append(_fitted(name, feeds.get(name), value.type, bound))
    return checked


class FeedCheck:
    """`check_feeds` for a graph that runs often: arrays in shapes that fitted before are not gone through again."""

    _MOST = 1024
    """So many lists of shapes are remembered."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._wanted = _array_dtypes(graph)
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The inputs as `check_feeds` gives them."""
        arrays = self._arrays(feeds)
        if arrays is None:
            return check_feeds(self._graph, feeds)
        shapes = tuple([array.shape for array in arrays])
        if shapes in self._fitting:
            return [read_only(array) for array in arrays]
        checked = check_feeds(self._graph, feeds)
        if len(self._fitting) < self._MOST:
            self._fitting.add(shapes)
        return checked

    def _arrays(self, feeds: Mapping[str, Any]) -> list[Array] | None:
        """What is fed, in order, if these are just the arrays that the graph takes; else None."""
        if self._wanted is None or not _is_mapping(feeds) or len(feeds) != len(self._wanted):
            return None
        given = [feeds.get(name) for name in self._wanted]
        for array, dtype in zip(given, self._wanted.values(), strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
        return cast("list[Array]", given)


def _is_mapping(feeds: object) -> bool:
    return isinstance(feeds, Mapping)


def _array_dtypes(graph: Graph) -> dict[str, np.dtype[Any]] | None:
    """The dtypes of the arrays that a graph takes, by name; None if it takes anything else, or texts."""
    kinds = [value.type for value in graph.inputs]
    tensors = [kind for kind in kinds if isinstance(kind, TensorType) and kind.dtype is not dtypes.string]
    if len(tensors) < len(kinds):
        return None
    return {name: kind.dtype.numpy for name, kind in zip(graph.input_names, tensors, strict=True)}


def place_of(name: str, feeds: Mapping[str, Any]) -> Array:
    """The memory of an input that the model changes in place; BadFeed if it cannot be written to."""
    given = feeds.get(name)
    place = _read(name, given) if hasattr(given, "dtype") else None
    if given is not None and (place is None or not place.flags.writeable):
        raise BadFeed(f"the model changes its input '{name}', which cannot be written to", hint="feed a NumPy array")
    return np.empty(0) if place is None else place


def continuable(
    graph: Graph, continued: Mapping[int, int], given: Sequence[Any], keep: Collection[str], feeds: Mapping[str, Any]
) -> Sequence[Any]:
    """What is given, with the inputs that outputs in `keep` continue (`continued`, by their places) as tensors that
    have room for that; as it is unless all outputs that continue inputs are kept."""
    if not all(graph.output_names[result] in keep for result in continued.values()):
        return given
    room = list(given)
    for source in continued:
        fed = feeds.get(graph.input_names[source])
        room[source] = fed if isinstance(fed, GrownTensor) else GrownTensor(given[source])
    return room


def _signature(graph: Graph) -> str:
    inputs = zip(graph.input_names, graph.inputs, strict=True)
    return ", ".join(f"{name}: {value.type}" for name, value in inputs) or "no inputs"


def _fitted(name: str, given: Any, kind: Type, bound: _Bound) -> Any:
    if isinstance(kind, OptionalType):
        return None if given is None else _fitted(name, given, kind.elem, bound)
    if isinstance(kind, SequenceType):
        if not isinstance(given, list | tuple):
            raise BadFeed(f"the input '{name}' takes a list of values, got {type(given).__name__}")
        items = cast("list[Any]", given)
        return [_fitted(f"{name}[{i}]", item, kind.elem, _Bound()) for i, item in enumerate(items)]
    if isinstance(kind, MapType):
        if not isinstance(given, Mapping):
            raise BadFeed(f"the input '{name}' takes a dictionary, got {type(given).__name__}")
        return given  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(kind, TensorType):
        return given
    if isinstance(given, DeviceTensor):
        if given.dtype != kind.dtype.numpy:
            raise BadFeed(f"the input '{name}' is {given.dtype}, the model takes {kind.dtype}")
        _check_shape(name, given, kind, bound)
        return given
    if isinstance(given, GrownTensor):
        given = given.array
    plain = type(given) is np.ndarray and given.dtype is kind.dtype.numpy and kind.dtype is not dtypes.string
    array: Array = given if plain else _array(name, given, kind.dtype)
    _check_shape(name, array, kind, bound)
    return read_only(array)


def _array(name: str, given: Any, dtype: DType) -> Array:
    if given is None:
        raise BadFeed(f"the input '{name}' is None", hint=f"give an array of {dtype}")
    if not hasattr(given, "dtype"):
        given = _from_python(name, given, dtype)
    array = _read(name, given)
    try:
        found = dtypes.of(array)
    except TypeError as error:
        raise BadFeed(f"the input '{name}' has the dtype {array.dtype}, the model takes {dtype}") from error
    if found is not dtype:
        raise BadFeed(
            f"the input '{name}' is {found}, the model takes {dtype}",
            hint=f"convert it: {name}.astype(np.{dtype.numpy.name})" if dtype.numpy.kind in "fiub" else "",
        )
    if dtype is dtypes.string:
        return _strings(array)
    return array.astype(dtype.numpy, copy=False)


def _read(name: str, given: Any) -> Array:
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        raise BadFeed(f"the input '{name}' cannot be read as an array: {text}", hint="feed a NumPy array") from error


def _strings(array: Array) -> Array:
    decoded = [item.decode() if isinstance(item, bytes) else str(item) for item in array.reshape(-1).tolist()]
    result = np.empty(array.size, dtype=object)
    result[:] = decoded
    return result.reshape(array.shape)


def _from_python(name: str, given: Any, dtype: DType) -> Array:
    """Numbers and lists carry no dtype of their own: they take the model's."""
    try:
        return np.array(given, dtype=dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadFeed(f"the input '{name}' is no array of {dtype}: {error}") from error


@lru_cache(1024)
def _range(dim: Expr) -> tuple[str, int | None, int | None]:
    """The name of a size, the least that it may be and the most. The same few are asked for in every run."""
    return str(dim), *bounds(dim)


def _check_range(name: str, axis: int, size: int, least: int | None, most: int | None) -> None:
    if (least is not None and size < least) or (most is not None and size > most):
        allowed = f"at least {least}" if most is None else f"{least or 0} to {most}"
        raise BadFeed(f"dim {axis} of the input '{name}' is {size}, the model takes {allowed}")


def _check_shape(name: str, array: Array | DeviceTensor, kind: TensorType, bound: _Bound) -> None:
    if kind.shape is None or (kind.shape, array.shape) in bound.fitting:
        return
    if array.ndim != len(kind.shape):
        raise BadFeed(
            f"the input '{name}' has {array.ndim} dims {list(array.shape)}, the model takes {len(kind.shape)}: {kind}"
        )
    for axis, (size, dim) in enumerate(zip(array.shape, kind.shape, strict=True)):
        if isinstance(dim, int):
            if size != dim:
                raise BadFeed(f"dim {axis} of the input '{name}' is {size}, the model takes {dim}: {kind}")
        elif dim is not UNKNOWN:
            called, least, most = _range(dim)
            _check_range(name, axis, size, least, most)
            before, where, at = bound.sizes.setdefault(called, (size, name, axis))
            if before != size:
                raise UnequalDims(
                    f"'{dim}' is {before} as dim {at} of '{where}' but {size} as dim {axis} of '{name}'",
                    hint=f"all dims called '{dim}' must be equal",
                )
    bound.fitting.add((kind.shape, array.shape))
