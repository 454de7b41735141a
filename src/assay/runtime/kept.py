"""Programs that outlive their process: what a session compiled, as bytes, and made runnable again without its graph.

A kept program is native code over constants. Those that lie in a file of weights are not part of the bytes: they are
named, and read where the file is mapped. The bytes hold kernels and tables that native code trusts, so they may only
come from a store (`assay.store`), under a key that covers all that they depend on.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.ir import dtypes
from assay.ir.dtypes import Array, address, read_only
from assay.ir.graph import Graph, Value
from assay.ir.parser import parse_type
from assay.runtime.feeds import FeedCheck, continuable
from assay.runtime.results import handed_out
from assay.targets.budget import Budget
from assay.targets.cpu.kept_code import KINDS, as_table, from_table
from assay.targets.cpu.native import NativeExecutable
from assay.targets.cpu.toolchain import Toolchain
from assay.targets.threads import Threads

if TYPE_CHECKING:
    from assay.runtime.program import Program

MOST = 16 << 20
"""Programs with more bytes of constants of their own are not kept: what was packed anew for a processor, above all."""
_LENGTH, _LINE = 8, 64


class KeptProgram:
    """A program whose graph is not there. It runs; what else there is to know, the model itself must be asked.

    `interface` is a graph without nodes: the names and types of inputs and outputs.
    """

    def __init__(self, interface: Graph, reads: Sequence[int], writes: Sequence[int], code: NativeExecutable) -> None:
        """`reads` are the places of the inputs that the code takes, `writes` those of its results that are outputs."""
        self.interface, self._reads, self._writes, self.code = interface, reads, writes, code
        self._check = FeedCheck(interface)
        results = {result: at for at, result in enumerate(writes)}
        self._continued = {reads[source]: results[result] for source, result in code.continued.items()}

    def run(self, feeds: Mapping[str, Any], *, keep: Collection[str] = (), budget: Budget | None = None) -> Any:
        """The outputs by name, as `Session.run` gives them."""
        graph = self.interface
        given: Sequence[Any] = self._check(feeds)
        if keep:
            given = continuable(graph, self._continued, given, keep, feeds)
        allowance = None if budget is None else budget.begin()
        made, _ = self.code.submit([given[at] for at in self._reads], None, allowance)
        return dict(zip(graph.output_names, handed_out([made[at] for at in self._writes]), strict=True))


# --- to bytes


def program_bytes(graph: Graph, program: Program | None, shared: Mapping[str, Array]) -> bytes | None:
    """A program of `graph` as bytes. Constants that are arrays of `shared` are named and no part of them.

    None if it is more than one segment of native code that makes all outputs, or has too much of its own.
    """
    segment = None if program is None else program.only_segment
    if program is None or segment is None or not isinstance(segment.executable, NativeExecutable):
        return None
    inputs, outputs = list(segment.graph.inputs), list(segment.graph.outputs)
    placed = program.plan.graph
    if not all(value in outputs for value in placed.outputs) or not all(value in placed.inputs for value in inputs):
        return None
    constants = _stored_constants(segment.executable.constants, shared)
    if constants is None:
        return None
    rows, own = constants
    code, arrays = as_table(segment.executable.code)
    document = {
        "name": graph.name,
        "inputs": _named_types(graph.input_names, graph.inputs),
        "outputs": _named_types(graph.output_names, graph.outputs),
        "reads": [placed.inputs.index(value) for value in inputs],
        "writes": [outputs.index(value) for value in placed.outputs],
        "constants": rows,
        "code": code,
        "lengths": [len(array) for array in arrays],
    }
    text = json.dumps(document, separators=(",", ":")).encode("ascii")
    parts = [len(text).to_bytes(_LENGTH, "little"), text, *(each.tobytes() for each in (*arrays, *own))]
    return b"".join(parts)


def _named_types(names: Sequence[str], values: Sequence[Value]) -> list[tuple[str, str]]:
    return [(name, str(value.type)) for name, value in zip(names, values, strict=True)]


def _stored_constants(
    constants: Sequence[Array], shared: Mapping[str, Array]
) -> tuple[list[str | tuple[str, Sequence[int]]], list[Array]] | None:
    """Constants as rows, names of shared arrays or dtypes and shapes of others, and these; None if they are too many
    bytes, or lie in memory in another way than one after the other."""
    known = {_place(array): name for name, array in shared.items()}
    rows: list[str | tuple[str, Sequence[int]]] = []
    own: list[Array] = []
    for array in constants:
        name = known.get(_place(array))
        if name is None and (array.dtype.hasobject or not array.flags.c_contiguous):
            return None
        rows.append((dtypes.of(array).name, array.shape) if name is None else name)
        own += [array] if name is None else []
    return (rows, own) if sum(array.nbytes for array in own) <= MOST else None


def _place(array: Array) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """What tells arrays apart that are alive: where they lie, and how they are read."""
    return address(array), array.dtype.str, array.shape, array.strides


# --- from bytes


def read_program(content: bytes, shared: Mapping[str, Array], toolchain: Toolchain, threads: Threads) -> KeptProgram:
    """The program that `program_bytes` made these bytes of. ValueError, TypeError or LookupError if they are no
    program, or there is no array in `shared` that it names."""
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    document = json.loads(content[_LENGTH:end])
    sizes = [length * kind.itemsize for length, kind in zip(document["lengths"], KINDS, strict=True)]
    kinds: list[tuple[np.dtype[Any], Sequence[int]] | None] = [_own_kind(row) for row in document["constants"]]
    sizes += [kind[0].itemsize * math.prod(kind[1]) for kind in kinds if kind is not None]
    memory = iter(_pieces(memoryview(content)[end:], sizes))
    arrays = [next(memory).view(kind) for kind in KINDS]
    constants = [
        shared[row] if kind is None else read_only(next(memory).view(kind[0]).reshape(kind[1]))
        for row, kind in zip(document["constants"], kinds, strict=True)
    ]
    code = from_table(document["code"], arrays)
    numbers = itertools.count()
    (names, inputs), (results, outputs) = (_read_types(document[key], numbers) for key in ("inputs", "outputs"))
    interface = Graph(document["name"], inputs, outputs, (), input_names=names, output_names=results)
    executable = NativeExecutable(code, constants, toolchain, threads)
    return KeptProgram(interface, document["reads"], document["writes"], executable)


def _own_kind(row: Any) -> tuple[np.dtype[Any], Sequence[int]] | None:
    """The dtype and shape of a constant that is part of the bytes; None for one that is not."""
    return None if isinstance(row, str) else (dtypes.by_name(row[0]).numpy, row[1])


def _read_types(rows: Sequence[tuple[str, str]], numbers: Iterator[int]) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    kinds = {text: parse_type(text) for text in dict.fromkeys(text for _, text in rows)}
    return tuple(name for name, _ in rows), tuple(Value(next(numbers), kinds[text]) for _, text in rows)


def _pieces(data: memoryview, sizes: Sequence[int]) -> list[Array]:
    """Data in pieces of these sizes, copied to memory in which each begins at a whole line of the cache."""
    if sum(sizes) != len(data):
        raise ValueError(f"{sum(sizes)} bytes are said to follow, and {len(data)} do")
    starts = [0, *itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    memory = np.empty(starts[-1] + _LINE, np.uint8)
    memory = memory[-address(memory) % _LINE :]
    at = 0
    for start, size in zip(starts, sizes, strict=False):
        memory[start : start + size] = np.frombuffer(data[at : at + size], np.uint8)
        at += size
    return [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
