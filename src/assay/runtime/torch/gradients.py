"""Gradients that eager does not have: AOTAutograd gives zeros where a parameter was written outside of autograd."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput, TangentAOTInput
from torch._guards import TracingContext


def without_idle_gradients(module: fx.GraphModule) -> fx.GraphModule:
    """A backward graph that returns None where all it would return is the gradient of what was written to a leaf.

    A leaf that wants a gradient can be written under `no_grad` or through a detached view only. The caller's tensor
    takes the new content without its history, so nothing ever flows back along that way.
    """
    context = TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return module
    output = next(iter(module.graph.find_nodes(op="output")))
    (returned,) = output.args
    output.args = (tuple(None if _is_idle(item, context.fw_metadata) else item for item in returned),)
    return module


def _is_idle(item: Any, metadata: Any) -> bool:
    """Whether this is the gradient of what a call wrote to a leaf."""
    told = item.meta.get("desc") if isinstance(item, fx.Node) else None
    if not isinstance(told, TangentAOTInput) or not isinstance(told.output, InputMutationAOTOutput):
        return False
    names = [each.mutated_input for each in _written(metadata)]
    leaves = [info.is_leaf for info in metadata.input_info if info.mutates_data and info.requires_grad]
    return dict(zip(names, leaves, strict=True)).get(told.output.mutated_input, False)


def _written(metadata: Any) -> list[InputMutationAOTOutput]:
    """What was written, in the order of the inputs."""
    outputs = [each.output for each in metadata.traced_tangents_descs]
    return [each for each in outputs if isinstance(each, InputMutationAOTOutput)]
