"""The pass `heads`: what surrounds attention, as one call each: heads split and joined, rotations, a cache that grows.

Each pattern looks at one node, its *anchor*, and at what makes its inputs or reads its results. The node that takes the
place of the pattern gives the same values, so that nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.ir.dtypes import Array, i64
from assay.ir.graph import Graph, Node, Value
from assay.passes.dce import dce
from assay.passes.rewrite import Rewriting, begin, renamed
from assay.targets.shared.tensors import dtype_of, shape_of


@dataclass(frozen=True, slots=True)
class FusedCall:
    """What takes the place of a pattern: an op on values, and the results that it gives."""

    op: str
    inputs: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Surroundings:
    """Who makes each value of a graph, who reads it, and what is given away."""

    graph: Graph
    makers: Mapping[Value, Node]
    readers: Mapping[Value, Sequence[Node]]

    def made_by(self, value: Value | None, *ops: str) -> Node | None:
        """The node that makes a value, if it is of one of these ops."""
        node = None if value is None else self.makers.get(value)
        return node if node is not None and node.op in ops else None

    def only_reader(self, value: Value, op: str) -> Node | None:
        """The one node that reads a value, if it is of this op and nobody else gets the value."""
        found = self.readers.get(value, ())
        alone = len(found) == 1 and value not in self.graph.outputs
        return found[0] if alone and found[0].op == op else None

    def content(self, value: Value | None) -> Array | None:
        """The content of a constant."""
        return None if value is None else self.graph.constants.get(value)


Pattern = Callable[[Node, Surroundings], FusedCall | None]


def fuse_heads(graph: Graph, static: Collection[Value], numbers: Iterator[int]) -> Graph:
    """The graph with the library's own composites around attention."""
    around = _surroundings(graph)
    rewriting = begin(graph, static, numbers)
    given: set[Value] = set()
    for node in graph.nodes:
        found = (pattern(node, around) for pattern in _PATTERNS.get(node.op, ()))
        match = next((each for each in found if each is not None), None)
        if match is not None and given.isdisjoint(match.results):
            _emit(match, node, around, rewriting)
            given.update(match.results)
        if given.isdisjoint(node.outputs):
            rewriting.nodes.append(node)
    return dce(rewriting.finished(graph)) if given else graph


def _emit(match: FusedCall, anchor: Node, around: Surroundings, rewriting: Rewriting) -> None:
    """The node that takes the place of a pattern; where its result has another shape, a reshape follows."""
    others = (around.makers[value].origin for value in match.results)
    origin = replace(anchor.origin, merged=tuple(each for each in others if each is not anchor.origin))
    result, *more = match.results
    if more:
        rewriting.nodes.append(Node(match.op, match.inputs, match.results, origin, dict(match.attrs)))
        return
    made = rewriting.emit(origin, match.op, *match.inputs, **match.attrs)
    if shape_of(made) != shape_of(result):
        made = rewriting.reshape(origin, made, [size for size in shape_of(result) if isinstance(size, int)])
    last = rewriting.nodes.pop()
    rewriting.nodes += renamed([last], {made: result})


def _surroundings(graph: Graph) -> Surroundings:
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    return Surroundings(graph, {value: node for node in graph.nodes for value in node.outputs}, readers)


# --- heads

_SWAPPED = (0, 2, 1, 3)
_TOKEN_FIRST = (2, 0, 1, 3)
_TOKEN_BACK = (1, 2, 0, 3)


def _concat_heads(node: Node, around: Surroundings) -> FusedCall | None:
    """A transpose (N, H, L, D) to (N, L, H, D), the last two axes of which are joined."""
    turn = around.made_by(node.inputs[0], "transpose")
    if turn is None or turn.attrs["perm"] != _SWAPPED:
        return None
    (x,) = turn.inputs
    assert x is not None
    count, heads, length, width = shape_of(x)
    joined = shape_of(node.outputs[0])
    known = all(isinstance(size, int) for size in (*shape_of(x), *joined))
    fits = known and joined[-1] == heads * width and joined[:-1] in ((count, length), (count * length,))
    return FusedCall("ttnn.concat_heads", (x,), node.outputs) if fits and _is_tiled(width) else None


def _split_heads(node: Node, around: Surroundings) -> FusedCall | None:
    """The first of three equal parts of the last axis, each taken apart into heads, which go before the length."""
    x = node.inputs[0]
    assert x is not None
    shape = shape_of(x)
    if len(shape) != 3 or not isinstance(shape[2], int) or _begins_at(node, around) != 0:
        return None
    third = shape[2] // 3
    parts = {_begins_at(each, around): each for each in around.readers[x] if each.op == "slice"}
    if set(parts) != {0, third, 2 * third} or any(shape_of(each.outputs[0])[2] != third for each in parts.values()):
        return None
    turned: list[Value] = []
    for start in (0, third, 2 * third):
        apart = around.only_reader(parts[start].outputs[0], "reshape")
        turn = None if apart is None else around.only_reader(apart.outputs[0], "transpose")
        if turn is None or turn.attrs["perm"] != _SWAPPED or shape_of(turn.outputs[0])[2] != shape[1]:
            return None
        turned += turn.outputs
    return _apart(x, turned) if len({shape_of(each) for each in turned}) == 1 else None


def _unbound_heads(node: Node, around: Surroundings) -> FusedCall | None:
    """(N, L, 3, H, D) with the threes first and heads before the length, of which each of the three is taken."""
    apart = around.made_by(node.inputs[0], "reshape")
    x = None if apart is None else apart.inputs[0]
    if node.attrs["perm"] != (2, 0, 3, 1, 4) or x is None or len(shape_of(x)) != 3:
        return None
    three = node.outputs[0]
    if shape_of(three)[0] != 3 or three in around.graph.outputs:
        return None
    taken: dict[int, Value] = {}
    for reader in around.readers.get(three, ()):
        place = around.content(reader.inputs[1]) if reader.op == "gather" else None
        if place is None or place.shape != () or reader.attrs["axis"] != 0:
            return None
        taken[int(place) % 3] = reader.outputs[0]
    return _apart(x, [taken[at] for at in range(3)]) if len(taken) == 3 else None


def _apart(x: Value, turned: Sequence[Value]) -> FusedCall | None:
    _, heads, _, width = shape_of(turned[0])
    return FusedCall("ttnn.split_heads", (x,), tuple(turned), {"heads": heads}) if _is_tiled(width) else None


def _is_tiled(width: Any) -> bool:
    return isinstance(width, int) and width % 32 == 0


# --- rotations


def _rotary(node: Node, around: Surroundings) -> FusedCall | None:
    """x · cos + (−high, low) · sin, in either order."""
    products = [around.made_by(each, "mul") for each in node.inputs]
    if None in products:
        return None
    for straight, crossed in (products, products[::-1]):
        assert straight is not None
        assert crossed is not None
        for turned, sin in (crossed.inputs, crossed.inputs[::-1]):
            x = _halves_of(turned, around)
            if x is not None and x in straight.inputs:
                (cos,) = [each for each in straight.inputs if each is not x] or [None]
                return _turned(x, cos, sin, node)
    return None


def _turned(x: Value, cos: Value | None, sin: Value | None, node: Node) -> FusedCall | None:
    if cos is None or sin is None or len(shape_of(x)) != 4:
        return None
    *_, length, width = shape_of(x)
    tables = all((1, 1, 1, 1, *shape_of(each))[-4:] == (1, 1, length, width) for each in (cos, sin))
    return FusedCall("ttnn.rotary", (x, cos, sin), node.outputs) if tables and _is_turnable(width) else None


def _is_turnable(width: Any) -> bool:
    return isinstance(width, int) and (width == 32 or width % 64 == 0)


def _halves_of(turned: Value | None, around: Surroundings) -> Value | None:
    """What a value is the two halves of, the second first and negated; None if it is nothing of the kind."""
    joined = around.made_by(turned, "concat")
    if (
        joined is None
        or len(joined.inputs) != 2
        or joined.attrs["axis"] not in (-1, len(shape_of(joined.outputs[0])) - 1)
    ):
        return None
    negated, low = around.made_by(joined.inputs[0], "neg"), around.made_by(joined.inputs[1], "slice")
    high = None if negated is None else around.made_by(negated.inputs[0], "slice")
    if low is None or high is None or low.inputs[0] is not high.inputs[0]:
        return None
    x = low.inputs[0]
    assert x is not None
    half = shape_of(x)[-1] // 2
    fits = all(shape_of(part.outputs[0])[-1] == half for part in (low, high))
    return x if fits and (_begins_at(low, around), _begins_at(high, around)) == (0, half) else None


def _begins_at(part: Node, around: Surroundings) -> int | None:
    """Where a slice of the last axis alone, of element after element, begins."""
    x = part.inputs[0]
    assert x is not None
    *outer, size = shape_of(x)
    start, step = around.content(part.inputs[1]), around.content(part.inputs[3])
    if part.attrs["axes"] not in ((-1,), (len(outer),)) or start is None or step is None or step.tolist() != [1]:
        return None
    return int(start[0]) % size if isinstance(size, int) else None


def _rotations(node: Node, around: Surroundings) -> FusedCall | None:
    """Whole numbers times frequencies, twice side by side, of which cosine and sine are taken."""
    angles = around.made_by(node.inputs[0], "mul")
    if angles is None or len(node.inputs) != 2 or node.inputs[0] is not node.inputs[1]:
        return None
    places, frequencies = sorted(angles.inputs, key=lambda each: around.made_by(each, "cast") is None)
    cast = around.made_by(places, "cast")
    whole = None if cast is None else cast.inputs[0]
    known = around.content(frequencies)
    if whole is None or known is None or known.ndim != 1:
        return None
    last = len(shape_of(whole)) - 1
    fits = dtype_of(whole) is i64 and shape_of(whole)[-1:] == (1,) and node.attrs["axis"] in (-1, last)
    readers = {each.op: each for each in around.readers[node.outputs[0]]}
    if not fits or set(readers) != {"cos", "sin"}:
        return None
    results = (*readers["cos"].outputs, *readers["sin"].outputs)
    return FusedCall("ttnn.rotations", (whole,), results, {"frequencies": tuple(known.tolist())})


# --- the cache


def _update_cache(node: Node, around: Surroundings) -> FusedCall | None:
    """Rows written at one place of the third axis, which goes first for that. What was in the cache must not be wanted
    any more, as it is written over."""
    written = around.made_by(node.inputs[0], "scatter_nd")
    if node.attrs["perm"] != _TOKEN_BACK or written is None or written.attrs["reduction"] != "none":
        return None
    turned, place, rows = written.inputs
    turn = around.made_by(turned, "transpose")
    cache = None if turn is None or turn.attrs["perm"] != _TOKEN_FIRST else turn.inputs[0]
    if cache is None or rows is None or place is None or around.only_reader(cache, "transpose") is None:
        return None
    sizes = shape_of(cache)
    known = all(isinstance(size, int) for size in sizes)
    if not known or shape_of(place) != (1, 1) or not _is_tiled(sizes[3]):
        return None
    flat = around.made_by(place, "unsqueeze", "reshape")
    vector = place if flat is None else flat.inputs[0]
    assert vector is not None
    return FusedCall("ttnn.update_cache", (cache, rows, vector), node.outputs)


# --- keys and values that several heads share


def _shared_keys(node: Node, around: Surroundings) -> FusedCall | None:
    """Attention to keys and values that were repeated for the heads that share them, which attention does itself."""
    q, *shared = node.inputs[:3]
    single = [_single(each, around) for each in shared]
    if q is None or None in single or len(node.inputs) > 4:
        return None
    mask = [each for each in node.inputs[3:] if each is not None]
    return FusedCall("sdpa", (q, *(each for each in single if each is not None), *mask), node.outputs, dict(node.attrs))


def _single(value: Value | None, around: Surroundings) -> Value | None:
    """What a value (N, H · times, L, D) repeats each head (N, H, L, D) of."""
    joined = around.made_by(value, "reshape")
    repeated = None if joined is None else around.made_by(joined.inputs[0], "expand")
    apart = None if repeated is None else around.made_by(repeated.inputs[0], "unsqueeze", "reshape")
    x = None if apart is None else apart.inputs[0]
    if joined is None or repeated is None or apart is None or x is None or len(shape_of(x)) != 4:
        return None
    count, heads, *rest = shape_of(x)
    spread = shape_of(repeated.outputs[0])
    fits = shape_of(apart.outputs[0]) == (count, heads, 1, *rest) and len(spread) == 5
    return x if fits and shape_of(joined.outputs[0]) == (count, heads * spread[2], *rest) else None


_PATTERNS: Mapping[str, Sequence[Pattern]] = {
    "sdpa": (_shared_keys,),
    "reshape": (_concat_heads,),
    "slice": (_split_heads,),
    "transpose": (_update_cache, _unbound_heads),
    "add": (_rotary,),
    "concat": (_rotations,),
}
"""The patterns by the op of their anchor."""
