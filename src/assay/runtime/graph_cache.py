"""Lowered graphs on disk: what lowering and the passes made of a source graph, found again by its content.

The key covers all that the result depends on: ops, attributes, types with their symbols, what is known of the inputs,
topology and constants of the source, the code of this package and the versions under it, and what the caller adds
(target, mode, the framework's version). Names and origins are not part of it: the stored graph refers to those of the
source by their place, so a graph from the cache carries the names and source lines of this very run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

import ml_dtypes
import numpy as np

import assay
from assay.errors import VerifyFailed
from assay.ir.binary import SharedParts, decode, encode, shared_parts
from assay.ir.dtypes import Array
from assay.ir.facts import Fact
from assay.ir.graph import Graph
from assay.ir.verify import verify
from assay.ops import CORE
from assay.runtime.code import code_digest
from assay.store import Store, digest

LARGEST = 256 << 20
"""Graphs that take more bytes, their constants included, are not kept."""


_MAKERS = ("limits.py", "ir", "ops", "passes", "frontends", "runtime")
"""The parts of this package that make a lowered graph what it is."""


_ENVIRONMENT = (assay.__version__, code_digest(_MAKERS), np.__version__, ml_dtypes.__version__)
"""What a result depends on besides the model. Read when the first graph is looked up: a later edit is not what runs."""


def lowered_graph(
    source: Graph,
    facts: Sequence[Fact],
    build: Callable[[], Graph],
    *,
    store: Store,
    options: Sequence[str] = (),
) -> Graph:
    """What `build` makes of `source`, taken from `store` if it is there, else put there.

    `facts` are those of the inputs that lowering is given. `options` are all else that the result depends on.
    """
    shared = shared_parts(source)
    try:
        key = graph_key(source, facts, options, shared)
    except TypeError:  # an attribute of a kind that the IR does not know: such a graph has no key
        return build()
    found = _read(store.get(key), source, shared)
    if found is not None:
        return found
    built = build()
    with suppress(TypeError):
        content = encode(built, shared)
        if len(content) <= LARGEST:
            store.put(key, content)
    return built


def graph_key(source: Graph, facts: Sequence[Fact], options: Sequence[str], shared: SharedParts | None = None) -> str:
    """The key of what lowering and the passes make of `source`."""
    shared = shared or shared_parts(source)
    stated = json.dumps([[str(fact.type), None if fact.value is None else _stated(fact.value)] for fact in facts])
    arrays = [digest(str(array.dtype), str(array.shape), _bytes(array)) for array in shared.arrays]
    return digest("lowered graph", *_ENVIRONMENT, str(len(options)), *options, encode(source, shared), stated, *arrays)


def _read(content: bytes | None, source: Graph, shared: SharedParts) -> Graph | None:
    """The graph that an entry holds; None unless it keeps the rules and has only ops that `source` can lead to."""
    if content is None:
        return None
    try:
        graph = decode(content, shared)
        verify(graph)
    except (ValueError, VerifyFailed):
        return None
    theirs = {node.op for node in source.walk()}
    ops = {node.attrs.get("target") if node.op == "opaque" else node.op for node in graph.walk()}
    fits = len(graph.inputs) == len(source.inputs) and len(graph.outputs) == len(source.outputs)
    return graph if fits and all(op in theirs or op in CORE for op in ops) else None


def _stated(value: Array) -> list[str]:
    """The content of a fact: numbers or dims as text."""
    return [str(value.dtype), str(value.shape), *map(str, value.ravel().tolist())]


def _bytes(array: Array) -> bytes:
    return json.dumps(array.ravel().tolist()).encode("ascii") if array.dtype == object else array.tobytes()
