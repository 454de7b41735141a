"""Core graphs as ONNX files, with the names that their inputs and outputs have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from assay.frontends.onnx.export import export_graph
from assay.ir.graph import Graph

_LARGE = 1024
"""Bytes from which on a constant goes to the second file."""


def save_graph(graph: Graph, path: Path) -> None:
    """Write a core graph as an ONNX file, its weights to a second one beside it. An output with the name of an input (a
    state) gets `.next` after it. NotInOnnx names a node that ONNX cannot say."""
    model = export_graph(graph)
    renewed = [f"{name}.next" if name in graph.input_names else name for name in graph.output_names]
    names = {f"input{index}": name for index, name in enumerate(graph.input_names)}
    names |= {f"output{index}": name for index, name in enumerate(renewed)}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names[value.name]
    library: Any = onnx
    library.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=_LARGE)
