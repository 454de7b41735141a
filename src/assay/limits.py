"""What a model may ask for: one documented set of bounds, checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on models and their values. The defaults fit real models on a large machine.

    Pass another instance to a session to loosen or tighten them.
    """

    model_bytes: int = 8 << 30
    """Size of a model file, its external data not counted."""
    text_bytes: int = 256 << 20
    """Size of one text in a model's archive, such as the graph of a `.pt2` file."""
    nodes: int = 2_000_000
    """Nodes of a model after its functions are expanded."""
    nesting: int = 32
    """Depth of control-flow bodies and function calls."""
    rank: int = 32
    """Dimensions of one tensor."""
    tensor_bytes: int = 16 << 30
    """Size of one tensor, checked before it is allocated."""
    sequence_length: int = 10_000_000
    """Elements of one sequence."""
    loop_iterations: int = 1_000_000_000
    """Iterations of one loop."""


DEFAULT = Limits()
