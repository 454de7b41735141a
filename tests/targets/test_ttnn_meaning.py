"""What the calls of the op table's rows mean: run by torch, whose functions the library names its own after, they give
what the op's definition says. No library and no card is needed; what the library takes is tested elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from assay.ir.dtypes import boolean
from assay.ir.graph import Graph
from assay.limits import DEFAULT
from assay.targets.reference.interpreter import Interpreter
from assay.targets.shared.tensors import dtype_of
from assay.targets.ttnn.lowering import planned
from assay.targets.ttnn.plan import CHANNELS_LAST, CallProgram, Ref, on_card, sizes
from assay.targets.ttnn.probing import cases, taken
from assay.targets.ttnn.table import TABLE


def _sliced(x: Any, starts: Any, ends: Any, steps: Any = None) -> Any:
    return x[tuple(map(slice, starts, ends, steps or [1] * len(starts)))]


def _padded(x: Any, pairs: Any, *, value: float) -> Any:
    return functional.pad(x, [count for pair in reversed(pairs) for count in pair], value=value)


def _repeated(x: Any, times: Any, *, mode: str, memory_config: Any) -> Any:
    assert mode == "nearest"
    return x.repeat_interleave(times[0], 1).repeat_interleave(times[1], 2)


def _attention(q: Any, k: Any, v: Any, *, attn_mask: Any, is_causal: bool, scale: float, **_: Any) -> Any:
    attend = functional.scaled_dot_product_attention
    return attend(q, k, v, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=True)


def _decoded(q: Any, k: Any, v: Any, **given: Any) -> Any:
    """One token: queries (1, N, H, D) and a mask (1, N, H, L)."""
    mask = given.pop("attn_mask")
    turned = None if mask is None else mask.permute(1, 2, 0, 3)
    found = _attention(q.permute(1, 2, 0, 3), k, v, attn_mask=turned, **given)
    return found.permute(2, 0, 1, 3)


def _heads(x: Any, *, num_heads: int, transpose_key: bool) -> Any:
    assert not transpose_key
    parts = x.chunk(3, -1)
    return tuple(part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in parts)


def _turned(x: Any, cos: Any, sin: Any, *, is_decode_mode: bool, compute_kernel_config: Any) -> Any:
    """As Hugging Face has it."""
    assert not is_decode_mode
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def _cached(cache: Any, rows: Any, *, update_idxs_tensor: Any) -> Any:
    """Rows (1, N, H, D) at a place for each entry of a batch."""
    found = cache.clone()
    for at, place in enumerate(update_idxs_tensor.tolist()):
        assert place >= 0, "such a row is left out"
        found[at, :, place] = rows[0, at]
    return found


def _channels_first(x: Any, told: Mapping[str, Any]) -> Any:
    return x.reshape(told["batch_size"], told["input_height"], told["input_width"], -1).permute(0, 3, 1, 2)


def _convolved(**told: Any) -> Any:
    above, below, left, right = told["padding"]
    image = functional.pad(_channels_first(told["input_tensor"], told), [left, right, above, below])
    bias = told["bias_tensor"]
    steps = {"stride": told["stride"], "dilation": told["dilation"], "groups": told["groups"]}
    found = functional.conv2d(image, told["weight_tensor"], None if bias is None else bias.reshape(-1), **steps)
    return found.permute(0, 2, 3, 1).reshape(1, 1, -1, found.shape[1])


def _spread(**told: Any) -> Any:
    """Without padding torch gives all that the kernel reaches, and `output_padding` is more behind it."""
    assert told["mirror_kernel"], "the kernel is not turned around before"
    above, below, left, right = told["padding"]
    bias, image = told["bias_tensor"], _channels_first(told["input_tensor"], told)
    steps = {"stride": told["stride"], "dilation": told["dilation"], "groups": told["groups"]}
    found = functional.conv_transpose2d(image, told["weight_tensor"], None, **steps)
    more = told["output_padding"]
    found = functional.pad(found, [-left, more[1] - right, -above, more[0] - below])
    found = found if bias is None else found + bias.reshape(-1, 1, 1)
    return found.permute(0, 2, 3, 1).reshape(1, 1, -1, found.shape[1])


def _grouped(x: Any, *, num_groups: int, epsilon: float, **_: Any) -> Any:
    return functional.group_norm(x.permute(0, 3, 1, 2), num_groups, eps=epsilon).permute(0, 2, 3, 1)


_ACTIVATIONS = {
    "UnaryOpType.RELU": functional.relu,
    "UnaryOpType.GELU": functional.gelu,
    "UnaryOpType.SILU": functional.silu,
}


def _linear(x: Any, w: Any, *, bias: Any, activation: Any, transpose_b: bool, compute_kernel_config: Any) -> Any:
    product = x @ (w.T if transpose_b else w)
    total = product if bias is None else product + bias
    return total if activation is None else _ACTIVATIONS[activation.args[0].path](total)


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, dim, keepdim: function(x, dim=dim, keepdim=keepdim)


def _norm(function: Callable[..., Any]) -> Callable[..., Any]:
    def normed(x: Any, *, epsilon: float, compute_kernel_config: Any, **given: Any) -> Any:
        return function(x, x.shape[-1:], eps=epsilon, **given)

    return normed


_LIKE_TORCH = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp", "cos", "cosh", "cumprod",
    "cumsum", "div", "divide", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod",
    "ge", "gt", "hypot", "isinf", "isnan", "le", "log",
    "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "multiply", "ne", "neg",
    "pow", "reciprocal", "remainder", "reshape", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "tril", "triu", "trunc", "argmax", "topk", "sort", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_not", "scatter", "scatter_add",
)  # fmt: skip
_LIKE_FUNCTIONAL = ("gelu", "leaky_relu", "elu", "mish", "relu", "silu", "softplus")
MEANINGS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in _LIKE_TORCH},
    **{name: getattr(functional, name) for name in _LIKE_FUNCTIONAL},
    "minimum": lambda x, y: torch.minimum(x, torch.as_tensor(y, dtype=x.dtype)),
    "maximum": lambda x, y: torch.maximum(x, torch.as_tensor(y, dtype=x.dtype)),
    "where": lambda c, x, y: torch.where(c != 0, x, y),
    "Tensor": lambda content, *_: _tensor(content),
    "to_layout": lambda x, layout: x,
    "typecast": lambda x, dtype: x.long() if "int" in dtype.path else x.double(),
    "permute": lambda x, order: x.permute(order),
    "repeat": lambda x, counts: x.repeat(counts),
    "slice": _sliced,
    "concat": lambda parts, *, dim: torch.cat(parts, dim),
    "pad": _padded,
    "embedding": lambda ids, table, *, layout: functional.embedding(ids, table),
    "gather": lambda x, axis, *, index: torch.gather(x, axis, index),
    "prod": lambda x, *, dim, keepdim: torch.prod(x, dim, keepdim),
    "upsample": _repeated,
    "linear": _linear,
    "matmul": lambda x, y, *, compute_kernel_config: torch.matmul(x, y),
    "softmax": lambda x, *, dim, numeric_stable, compute_kernel_config: torch.softmax(x, dim),
    "layer_norm": _norm(functional.layer_norm),
    "rms_norm": _norm(functional.rms_norm),
    "sum": _reduced(torch.sum),
    "mean": _reduced(torch.mean),
    "max": _reduced(torch.amax),
    "min": _reduced(torch.amin),
    "transformer.scaled_dot_product_attention": _attention,
    "transformer.scaled_dot_product_attention_decode": _decoded,
    "transformer.concatenate_heads": lambda x: x.transpose(1, 2).flatten(2),
    "transformer.split_query_key_value_and_split_heads": _heads,
    "experimental.rotary_embedding_hf": _turned,
    "experimental.paged_update_cache": _cached,
    "to_memory_config": lambda x, where: x,
    "from_device": lambda x: x,
    "conv2d": _convolved,
    "prepare_conv_transpose2d_weights": lambda *, weight_tensor, **_: weight_tensor,
    "prepare_conv_transpose2d_bias": lambda *, bias_tensor, **_: bias_tensor,
    "conv_transpose2d": _spread,
    "group_norm": _grouped,
}
IMAGES = ("max_pool", "average_pool")
"""Rows whose calls torch has nothing like: images with channels last as matrices."""


def replayed(program: CallProgram, content: Mapping[Any, Any]) -> list[Any]:
    """The results of a program's calls, as torch computes them in f64."""
    assert not any(each.form.order == CHANNELS_LAST for each in program.given)
    values = {each.ref: _tensor(content[each.value]).reshape(on_card(each.value)) for each in program.given}

    def argument(given: Any) -> Any:
        if isinstance(given, Ref):
            return values[given]
        return [argument(each) for each in given] if type(given) in (list, tuple) else given

    for step in program.steps:
        given = {name: argument(each) for name, each in step.kwargs.items()}
        found = MEANINGS[step.op](*map(argument, step.args), **given)
        results = [found] if isinstance(found, torch.Tensor) else found
        for ref, result in zip(step.results, results, strict=True):
            values[ref] = result.double() if result.dtype is torch.bool else result
    return [values[ref] for ref in program.outputs]


def _tensor(array: Any) -> Any:
    return torch.as_tensor(np.array(array, np.int64 if array.dtype.kind in "iu" else np.float64))


def drawn(graph: Graph) -> dict[Any, Any]:
    """Contents of a graph's inputs, in the domain of most functions, no two equal; whole numbers are positions in every
    axis, from either end, and none is 0."""
    rng = np.random.default_rng(7)
    smallest = min(min(on_card(value)) for value in graph.inputs)
    found: dict[Any, Any] = {}
    for value in graph.inputs:
        dtype, shape = dtype_of(value), sizes(value)
        count = prod(shape)
        floats = 0.1 + 0.8 * (rng.permutation(count).reshape(shape) + 0.5) / count
        whole = rng.integers(-smallest, smallest, shape)
        draw = floats if dtype.is_float else floats > 0.5 if dtype is boolean else np.where(whole == 0, -1, whole)
        found[value] = draw.astype(dtype.numpy)
    return found


@pytest.mark.parametrize("op", sorted(op for op in TABLE.rows if op not in IMAGES))
def test_the_calls_of_a_row_mean_what_the_op_does(op: str) -> None:
    seen = 0
    for told, graph in cases(op):
        if "bf16" in told or not taken(graph) or sum(np.prod(on_card(value)) for value in graph.inputs) > 1e6:
            continue
        content = drawn(graph)
        right, _ = Interpreter(graph, "precise", DEFAULT, {}).submit(list(content.values()))
        for found, wanted in zip(replayed(planned(graph), {**graph.constants, **content}), right, strict=True):
            np.testing.assert_allclose(
                found.reshape(np.shape(wanted)).numpy(),
                np.asarray(wanted, np.float64),
                rtol=1e-5,
                atol=1e-6,
                err_msg=told,
            )
        seen += 1
    assert seen, "no case"
