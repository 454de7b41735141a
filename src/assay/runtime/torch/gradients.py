"""Gradients that eager does not have: AOTAutograd gives zeros where a parameter was written outside of autograd."""

from __future__ import annotations

from torch import fx

from assay.frontends.torch.private.ops import is_idle_gradient


def without_idle_gradients(module: fx.GraphModule) -> fx.GraphModule:
    """A backward graph that returns None where all it would return is the gradient of what was written to a leaf."""
    output = next(iter(module.graph.find_nodes(op="output")))
    (returned,) = output.args
    output.args = (tuple(None if is_idle_gradient(item) else item for item in returned),)
    return module
