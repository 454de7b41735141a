"""What a model is fed from the command line: files, random numbers, sizes of symbolic dims."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import typer

from assay.cli.numbers import MOST_SEED, count_option
from assay.cli.sizes import check_sizes
from assay.errors import BadFeed, NotFound, hint_for
from assay.ir import dtypes
from assay.ir.dims import UNKNOWN, Expr, bounds, evaluate, symbols
from assay.ir.dtypes import Array, DType
from assay.ir.graph import Graph
from assay.ir.types import OptionalType, SequenceType, TensorType, Type
from assay.limits import DEFAULT
from assay.memory import free_memory
from assay.ops.lowering import lower

if TYPE_CHECKING:
    from assay.runtime.load import Loaded

ModelArgument = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An ONNX file, or a .pt2 file of torch.export.", show_default=False)
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="[NAME=]FILE",
        help="An input: .npy, .pb (a serialized tensor), or .npz (several by name). Without NAME, the next in order.",
    ),
]
RandomOption = Annotated[
    int | None,
    count_option(
        "--random",
        least=0,
        most=MOST_SEED,
        metavar="SEED",
        help="Random values for inputs not given: floats normal, integers 0, 1.",
    ),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="The size of a symbolic dim of random inputs (default: 1)."),
]


@dataclass(frozen=True, slots=True)
class Feeds:
    """What a model is fed, and the symbolic dims that were taken to be 1 because nobody gave them a size."""

    values: dict[str, Any]
    assumed: tuple[str, ...] = ()


def make_feeds(
    source: Loaded,
    files: Sequence[str] | None,
    seed: int | None,
    sizes: Sequence[str] | None,
    lowered: Callable[[], Graph] | None = None,
) -> Feeds:
    """Inputs for a model as the options say; BadFeed names what they leave out. `lowered` gives the model's core graph
    if that is at hand: dims that are taken to be 1 must fit it."""
    types = source.inputs
    feeds = _from_files(types, files or ())
    dims = check_dims(symbolic_dims(types), sizes or ())
    if seed is None:
        _check_complete(types, feeds)
        return Feeds(feeds)
    for name, value in feeds.items():
        for dim, size in _sizes(types[name], value):
            dims.setdefault(dim, size)
    drawn = {name: kind for name, kind in types.items() if name not in feeds}
    free = dict.fromkeys(name for kind in drawn.values() for name in _symbols(kind) if name not in dims)
    check_sizes(lowered or partial(lower, source.graph, source.facts), dims, list(free))
    rng = np.random.default_rng(seed)
    made = {name: _random(name, kind, dims, rng) for name, kind in drawn.items()}
    return Feeds({name: feeds[name] if name in feeds else made[name] for name in types}, tuple(free))


def _check_complete(types: Mapping[str, Type], feeds: Collection[str]) -> None:
    """BadFeed if an input is missing."""
    missing = [name for name, kind in types.items() if name not in feeds and not isinstance(kind, OptionalType)]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        told = f"the input {names} is missing" if len(missing) == 1 else f"the inputs {names} are missing"
        hint = f"give --input {missing[0]}=FILE, or --random 0; {missing[0]} is {types[missing[0]]}"
        raise BadFeed(told, hint=hint)


def _symbols(kind: Type) -> list[str]:
    """The symbols in the shape of an input."""
    dims = [dim for dim in _shape(kind) if isinstance(dim, Expr) and dim is not UNKNOWN]
    return [name for dim in dims for name in sorted(symbols(dim))]


def symbolic_dims(types: Mapping[str, Type]) -> dict[str, list[str]]:
    """The symbolic dims of the inputs, and where each occurs."""
    found: dict[str, list[str]] = {}
    for name, kind in types.items():
        for axis, dim in enumerate(_shape(kind)):
            if isinstance(dim, Expr) and dim is not UNKNOWN:
                found.setdefault(_dim_name(dim), []).append(f"{name}[{axis}]")
    return found


def _dim_name(dim: Expr) -> str:
    """A dim as users write it: without the ranges of its symbols."""
    return re.sub(r"\[\d*\.\.\d*\]", "", str(dim))


def _shape(kind: Type) -> tuple[Any, ...]:
    if isinstance(kind, OptionalType | SequenceType):
        return _shape(kind.elem)
    return kind.shape or () if isinstance(kind, TensorType) else ()


def _sizes(kind: Type, value: Any) -> list[tuple[str, int]]:
    """What an input that was given says of symbolic dims."""
    if not isinstance(kind, TensorType) or len(_shape(kind)) != np.ndim(value):
        return []
    pairs = zip(_shape(kind), np.shape(value), strict=True)
    return [(_dim_name(dim), size) for dim, size in pairs if isinstance(dim, Expr) and dim is not UNKNOWN]


def check_dims(known: Collection[str], sizes: Sequence[str]) -> dict[str, int]:
    """The sizes that `--dim` gives by name; BadFeed for what is no size, NotFound for a dim that is not `known`."""
    dims: dict[str, int] = {}
    for text in sizes:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise BadFeed(f"--dim takes NAME=SIZE, got '{text}'", hint="for example --dim batch=4")
        if name not in known:
            hint = hint_for(name, known) if known else "all dims of its inputs are numbers"
            raise NotFound(f"the model has no symbolic dim '{name}'", hint=hint)
        dims[name] = int(size)
    return dims


# --- files


def _from_files(types: Mapping[str, Type], files: Sequence[str]) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    unnamed: list[Path] = []
    for text in files:
        name, found, path = text.partition("=")
        if found and name in types:
            feeds[name] = _read(Path(path), types[name])
        elif text.endswith(".npz"):
            feeds.update(_read_archive(Path(text), types))
        elif found and not os.path.exists(text):
            raise NotFound(f"the model has no input '{name}'", hint=hint_for(name, types))
        else:
            unnamed.append(Path(text))
    free = [name for name in types if name not in feeds]
    if len(unnamed) > len(free):
        raise BadFeed(f"{len(unnamed)} files for {len(free)} inputs", hint=f"the model takes {', '.join(types)}")
    feeds.update((name, _read(path, types[name])) for name, path in zip(free, unnamed, strict=False))
    return feeds


def _read(path: Path, kind: Type) -> Any:
    if not os.path.isfile(path):
        raise NotFound(f"there is no input file '{path}'", hint="check the path")
    if path.suffix == ".pb":
        return _read_proto(path, kind)
    if path.suffix != ".npy":
        raise BadFeed(f"'{path}' is of no kind that can be read", hint="give .npy, .npz or .pb")
    try:
        return _typed(np.load(path, allow_pickle=False), kind)
    except (ValueError, EOFError) as error:
        raise BadFeed(f"'{path}' is no .npy file: {error}") from error


def _read_archive(path: Path, types: Mapping[str, Type]) -> dict[str, Any]:
    if not os.path.isfile(path):
        raise NotFound(f"there is no input file '{path}'", hint="check the path")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (ValueError, EOFError, OSError) as error:
        raise BadFeed(f"'{path}' is no .npz file: {error}") from error
    for name in arrays:
        if name not in types:
            raise NotFound(f"'{path}' has '{name}', which is no input of the model", hint=hint_for(name, types))
    return {name: _typed(array, types[name]) for name, array in arrays.items()}


def _read_proto(path: Path, kind: Type) -> Any:
    import onnx
    import onnx.numpy_helper
    from google.protobuf.message import DecodeError

    data = path.read_bytes()
    try:
        if isinstance(kind, SequenceType):
            return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        if isinstance(kind, OptionalType):
            return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))
    except (DecodeError, ValueError, TypeError) as error:
        raise BadFeed(f"'{path}' is no serialized {kind}: {error}") from error


def _typed(array: Array, kind: Type) -> Array:
    """NumPy files know no bf16 and the like: such data come as raw bytes, which get the model's dtype back."""
    if array.dtype.kind == "V" and isinstance(kind, TensorType) and array.dtype.itemsize == kind.dtype.numpy.itemsize:
        return array.view(kind.dtype.numpy)
    return array


# --- random values


def _random(name: str, kind: Type, dims: Mapping[str, int], rng: np.random.Generator) -> Any:
    if isinstance(kind, OptionalType):
        return _random(name, kind.elem, dims, rng)
    if isinstance(kind, SequenceType):
        return [_random(name, kind.elem, dims, rng) for _ in range(2)]
    if not isinstance(kind, TensorType) or kind.shape is None:
        raise BadFeed(f"'{name}' is {kind}: there are no random values for that", hint=f"give --input {name}=FILE")
    shape = tuple(d if isinstance(d, int) else _size(d, dims) for d in kind.shape)
    _check_memory(name, shape)
    return random_array(kind.dtype, shape, rng)


def _size(dim: Expr, dims: Mapping[str, int]) -> int:
    """What was said of the dim or follows from that; else 1, or the least that its range has."""
    known = {name: dims.get(name, 1) for name in symbols(dim)}
    found = dims.get(_dim_name(dim), evaluate(dim, known))
    return max(bounds(dim)[0] or 0, 1) if found is None else found


def _check_memory(name: str, shape: tuple[int, ...]) -> None:
    """BadFeed if the random numbers of an input, which are drawn in f64, would not fit into memory."""
    needed, room = 8 * math.prod(shape), min(DEFAULT.tensor_bytes, free_memory() or DEFAULT.tensor_bytes)
    if needed > room:
        raise BadFeed(
            f"the input '{name}' of shape {list(shape)} would take {needed / (1 << 30):,.1f} GiB",
            hint=f"give smaller sizes with --dim; there is room for {room / (1 << 30):.1f} GiB",
        )


def random_array(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Floats from the normal distribution; integers 0 or 1, which most models take for indices and masks alike
    (8-bit ones, which are pixels and the like, from their whole range); strings from a few words."""
    if dtype is dtypes.string:
        return rng.choice(np.array(["", "a", "tree", "Ünïcode", "two words"], object), shape).astype(object)
    if dtype is dtypes.boolean:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        low, high = (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max) if dtype.bits == 8 else (0, 1)
        return rng.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    if dtype.kind == "complex":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype.numpy)
    return cast(Array, rng.normal(size=shape)).astype(dtype.numpy)
