"""Attention and what surrounds it: heads, rotations, the cache of decoding."""

from __future__ import annotations

from math import inf

import numpy as np

from assay.ir.graph import Node, Value
from assay.targets.base import limitation
from assay.targets.ttnn.formats import TILE as TILE_SIZE
from assay.targets.ttnn.plan import ROWS, TILE, CallPlanner, Form, Make, Named, Ref, kind_of, on_card, sizes
from assay.targets.ttnn.products_config import ACCURATE
from assay.targets.ttnn.rows.movement import repeated
from assay.targets.ttnn.rows.reductions import coarser
from assay.targets.ttnn.table import FLOAT, HELD, INT, lowers

# --- attention


@limitation("the library's attention has four axes")
def _other_rank(node: Node) -> bool:
    return len(sizes(node.inputs[0])) != 4


@limitation("the library's attention does not cap scores")
def _capped(node: Node) -> bool:
    return bool(node.attrs["softcap"])


@limitation("the library's causal attention has no mask, and as many keys as queries")
def _partly_causal(node: Node) -> bool:
    q, k, _, mask = (*node.inputs, None)[:4]
    return node.attrs["causal"] and (mask is not None or sizes(q)[2] != sizes(k)[2])


_PREFILL, _DECODE = "transformer.scaled_dot_product_attention", "transformer.scaled_dot_product_attention_decode"


@lowers(
    "sdpa",
    calls=("pad", "repeat", "where", "permute", _PREFILL, _DECODE, "slice"),
    kinds=(FLOAT, FLOAT, FLOAT, HELD),
    unless=(_other_rank, _capped, _partly_causal, coarser),
)
def _sdpa(p: CallPlanner, node: Node) -> None:
    """Heads are filled up to whole tiles with zeros, which change no score; the mask is repeated for all queries. One
    query and whole tiles of keys are a step of decoding."""
    q, k, v, mask = (*node.inputs, None)[:4]
    queries, keys, result = sizes(q), sizes(k), node.outputs[0]
    width = max(queries[3], sizes(v)[3])
    width += -width % TILE_SIZE
    decodes = queries[2] == 1 and keys[2] % TILE_SIZE == 0 and keys[2] > 1
    wide = [_widened(p, p.take(each), width - sizes(each)[3]) for each in (q, k, v)]
    outer = queries[:2] if decodes else None
    added = None if mask is None else _whole_mask(p, mask, outer, queries[2], keys[2])
    if decodes:
        wide[0] = p.call("permute", wide[0], _TOKEN_FIRST)
        added = None if added is None else p.call("permute", added, _TOKEN_FIRST)
    scale = node.attrs["scale"]
    found = p.call(
        _DECODE if decodes else _PREFILL,
        *wide,
        attn_mask=added,
        is_causal=bool(node.attrs["causal"]) and not decodes,
        scale=float(scale) if scale is not None else queries[3] ** -0.5,
        compute_kernel_config=ACCURATE,
    )
    if decodes:
        found = p.call("permute", found, [1, 2, 0, 3])
    shape = sizes(result)
    p.give(result, found if shape[3] == width else p.call("slice", found, [0, 0, 0, 0], list(shape)))


_TOKEN_FIRST = [2, 0, 1, 3]
"""From (N, H, 1, D) to what calls for one token take."""


def _widened(p: CallPlanner, x: Ref, more: int) -> Ref:
    return p.call("pad", x, [(0, 0), (0, 0), (0, 0), (0, more)], value=0.0) if more else x


def _whole_mask(p: CallPlanner, mask: Value, outer: tuple[int, ...] | None, queries: int, keys: int) -> Ref:
    """A mask as numbers to be added to the scores of all queries; for `outer` batches and heads, or for as many as it
    has."""
    shape = (1, 1, 1, 1, *sizes(mask))[-4:]
    added = p.take(mask) if kind_of(mask) == "float" else p.call("where", p.take(mask), 0.0, -inf)
    return repeated(p, added, on_card(mask), (*(outer or shape[:2]), queries, keys))


# --- heads


@limitation("the library's heads are whole tiles")
def _narrow_heads(node: Node) -> bool:
    return _head(node) % TILE_SIZE != 0


def _head(node: Node) -> int:
    shape = sizes(node.inputs[0])
    return shape[3] if node.op != "ttnn.split_heads" else shape[2] // (3 * node.attrs["heads"])


@lowers("ttnn.concat_heads", calls=("transformer.concatenate_heads",), unless=(_narrow_heads,))
def _concat_heads(p: CallPlanner, node: Node) -> None:
    p.give(node.outputs[0], p.call("transformer.concatenate_heads", p.take(node.inputs[0])))


_SPLIT = "transformer.split_query_key_value_and_split_heads"


@lowers("ttnn.split_heads", calls=(_SPLIT,), unless=(_narrow_heads,))
def _split_heads(p: CallPlanner, node: Node) -> None:
    options = {"num_heads": node.attrs["heads"], "transpose_key": False}
    for result, found in zip(node.outputs, p.calls(3, _SPLIT, p.take(node.inputs[0]), **options), strict=True):
        p.give(result, found)


# --- rotations


@limitation("the library turns heads of 32, or of multiples of 64")
def _untileable(node: Node) -> bool:
    head = sizes(node.inputs[0])[3]
    return head != TILE_SIZE and head % (2 * TILE_SIZE) != 0


@lowers("ttnn.rotary", calls=("reshape", "experimental.rotary_embedding_hf"), unless=(_untileable,))
def _rotary(p: CallPlanner, node: Node) -> None:
    """A batch is more heads, as all have the same tables."""
    x, cos, sin = node.inputs
    count, heads, length, head = sizes(x)
    tables = [repeated(p, p.take(each), on_card(each), (1, 1, length, head)) for each in (cos, sin)]
    merged = p.call("reshape", p.take(x), [1, count * heads, length, head]) if count > 1 else p.take(x)
    call = "experimental.rotary_embedding_hf"
    found = p.call(call, merged, *tables, is_decode_mode=False, compute_kernel_config=ACCURATE)
    p.give(node.outputs[0], p.call("reshape", found, list(sizes(x))) if count > 1 else found)


@lowers("ttnn.rotations", calls=("Tensor", "typecast", "multiply", "concat", "cos", "sin"), kinds=(INT,))
def _rotations(p: CallPlanner, node: Node) -> None:
    """Angles are float32 on the card."""
    places = node.inputs[0]
    row = np.array(node.attrs["frequencies"], np.float32)[None]
    frequencies = p.call("Tensor", row, Named("float32"), Named("device"), Named(TILE))
    wide = p.call("typecast", p.take(places), Named("float32"))
    angles = p.call("multiply", wide, frequencies)
    both = p.call("concat", [angles, angles], dim=len(on_card(places)) - 1)
    for call, result in zip(("cos", "sin"), node.outputs, strict=True):
        p.give(result, p.call("typecast", p.call(call, both), Named(p.floats)))


# --- the cache


@limitation("the library writes to caches whose heads are whole tiles, of at most 32 heads")
def _no_cache(node: Node) -> bool:
    count, heads, _, head = sizes(node.inputs[0])
    return bool(head % TILE_SIZE) or heads > TILE_SIZE or count > _CORES


_CORES = 64
"""Each entry of a batch has a core of its own."""


@lowers(
    "ttnn.update_cache",
    calls=("to_memory_config", "remainder", "repeat", "experimental.paged_update_cache"),
    kinds=(FLOAT, FLOAT, INT),
    unless=(_no_cache,),
)
def _update_cache(p: CallPlanner, node: Node) -> None:
    """Written in place: the cache is no longer what it was. The new rows lie in the memory of one core each."""
    cache, rows, place = node.inputs
    count, _, length, head = sizes(cache)
    spread = p.call("to_memory_config", p.take(rows), _one_each(count, head))
    counted = p.call("remainder", p.take(place, Form("int32", ROWS)), length)
    places = repeated(p, counted, on_card(place), (count,))
    found = p.call("experimental.paged_update_cache", p.take(cache), spread, update_idxs_tensor=places)
    p.give(node.outputs[0], found, Form(p.floats, TILE))


def _one_each(count: int, width: int) -> Make:
    """A tile high for each of so many cores."""
    cores = Make("num_cores_to_corerangeset", {}, (count, Make("CoreCoord", {}, (8, 8)), True))
    return Make(
        "create_sharded_memory_config",
        {
            "shape": (TILE_SIZE, width),
            "core_grid": cores,
            "strategy": Named("ShardStrategy.HEIGHT"),
            "orientation": Named("ShardOrientation.ROW_MAJOR"),
            "use_height_and_width_as_shard_shape": True,
        },
    )
