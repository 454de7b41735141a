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
}
IMAGES = ("conv", "max_pool", "average_pool")
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
