"""One random ONNX model for each number, with what it is fed; and smaller models cut out of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.onnx_flow import FLOWS
from assay.evidence.fuzz.onnx_grow import Declared, Growth, Made, NodeMaker, built, reads
from assay.evidence.fuzz.onnx_layers import LAYERS
from assay.evidence.fuzz.onnx_shapes import SHAPES
from assay.ir.dtypes import Array

MAKERS: dict[NodeMaker, float] = {**SHAPES, **LAYERS, **FLOWS}
VARIANTS = 3
"""How many sets of sizes one structure is grown with: ordinary ones twice, then such with 0 and 1."""
_ATTEMPTS = 8


@dataclass(frozen=True)
class OnnxCase:
    """A model of some nodes; each growth knows the values of one set of feeds, the first one has shaped the model."""

    growths: tuple[Growth, ...]
    nodes: tuple[Made, ...]
    outputs: tuple[str, ...]
    style: str

    @property
    def ops(self) -> list[str]:
        """The ops of its nodes."""
        return [node.op for node in self.nodes]

    @property
    def feeds(self) -> list[dict[str, Any]]:
        """What each run is fed."""
        return [{name: growth.values[name] for name in self.fed} for growth in self.growths]

    @property
    def fed(self) -> list[str]:
        """The names of the inputs: what nodes read that is neither fixed nor made by another."""
        growth = self.growths[0]
        made = {name for node in self.nodes for name in node.outputs}
        read = [name for node in self.nodes for name in reads(node, growth.values)]
        return [name for name in dict.fromkeys(read) if name not in made and name not in growth.fixed]

    def proto(self) -> onnx.ModelProto:
        """The model."""
        growth = self.growths[0]
        fed = {name: growth.values[name] for name in self.fed}
        read = {name for node in self.nodes for name in reads(node, growth.values)}
        fixed = {name: array for name, array in growth.fixed.items() if name in read}
        return built(self.nodes, fed, fixed, self._declared(fed), growth.opset, self.outputs)

    def _declared(self, fed: dict[str, Any]) -> Declared:
        """What the model says of its inputs' dims: they must hold for every feed."""
        rng = random.Random(self.style)
        return {name: self._dims(name, rng) for name, value in fed.items() if isinstance(value, np.ndarray)}

    def _dims(self, name: str, rng: random.Random) -> Sequence[int | str | None] | None:
        shapes: list[Array] = [growth.values[name].shape for growth in self.growths]
        if any(len(shape) != len(shapes[0]) for shape in shapes) or (self.style == "ranks" and rng.random() < 0.5):
            return None
        dims: list[int | str | None] = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            known = self.style == "known" and len(set(sizes)) == 1
            dims.append(int(sizes[0]) if known else f"{name}_{axis}" if self.style != "nothing" else None)
        return dims


def random_case(seed: int, index: int) -> OnnxCase:
    """Model number `index` of a run: it depends on both numbers alone."""
    growths = [grown((seed, index), variant) for variant in range(VARIANTS)]
    first = growths[0]
    alike = [growth for growth in growths if _same_structure(growth, first)]
    rng = random.Random(f"{seed}.{index}.style")
    made = [name for node in first.nodes for name in node.outputs]
    read = {name for node in first.nodes for name in reads(node, first.values)}
    outputs = [name for name in made if name not in read or rng.random() < 0.2]
    style = rng.choice(("known", "known", "named", "nothing", "ranks"))
    return OnnxCase(tuple(alike), tuple(first.nodes), tuple(outputs), style)


def grown(seed: Sequence[int], variant: int) -> Growth:
    """The structure that a seed says, for one set of sizes."""
    growth = Growth(seed, variant)
    wanted = growth.rng.choice((1, 1, 1, 2, 3, 4))
    makers, shares = list(MAKERS), list(MAKERS.values())
    while len(growth.nodes) < wanted and growth.complete:
        for _ in range(_ATTEMPTS):
            try:
                growth.add(growth.rng.choices(makers, shares)[0](growth))
            except NotPossible:
                continue
            break
    return growth


def _same_structure(one: Growth, other: Growth) -> bool:
    """Whether two growths are the same model, fed differently."""
    if [str(node.proto()) for node in one.nodes] != [str(node.proto()) for node in other.nodes]:
        return False
    if one.fed.keys() != other.fed.keys() or one.fixed.keys() != other.fixed.keys():
        return False
    if any(one.fed[name].dtype != other.fed[name].dtype for name in one.fed):
        return False
    return all(
        np.array_equal(one.fixed[name], other.fixed[name], equal_nan=_is_float(one.fixed[name])) for name in one.fixed
    )


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f"


# --- cutting


def smaller(case: OnnxCase) -> Iterable[OnnxCase]:
    """The case with one feed, with one output, with one node alone, with a node less."""
    if len(case.growths) > 1:
        yield from (OnnxCase((growth,), case.nodes, case.outputs, case.style) for growth in case.growths)
    if len(case.nodes) > 1:
        yield from (cut(case, [node]) for node in case.nodes)
        yield from (cut(case, [other for other in case.nodes if other is not node]) for node in case.nodes)
    if len(case.outputs) > 1:
        yield from (OnnxCase(case.growths, _needed(case, name), (name,), case.style) for name in case.outputs)
    if case.style != "known":
        yield OnnxCase(case.growths, case.nodes, case.outputs, "known")


def _needed(case: OnnxCase, output: str) -> tuple[Made, ...]:
    """The nodes that an output follows from. Others might be refused by one and overlooked by another."""
    wanted, kept = {output}, list[Made]()
    for node in reversed(case.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(reads(node, case.growths[0].values))
            kept.insert(0, node)
    return tuple(kept)


def cut(case: OnnxCase, nodes: Sequence[Made]) -> OnnxCase:
    """Some nodes of the case; what the others made is fed."""
    read = {name for node in nodes for name in reads(node, case.growths[0].values)}
    made = [name for node in nodes for name in node.outputs]
    outputs = tuple(name for name in made if name not in read or name in case.outputs)
    return OnnxCase(case.growths, tuple(nodes), outputs, case.style)


def unconnected(case: OnnxCase) -> list[OnnxCase]:
    """The parts of a case of which none reads what another makes, as cases of their own."""
    parts: list[list[Made]] = []
    for node in case.nodes:
        read = set(reads(node, case.growths[0].values))
        near = [part for part in parts if any(read.intersection(other.outputs) for other in part)]
        parts = [part for part in parts if part not in near] + [[*(other for part in near for other in part), node]]
    if len(parts) == 1:
        return [case]
    ordered = [[node for node in case.nodes if node in part] for part in parts]
    return [cut(case, nodes) for nodes in ordered]
