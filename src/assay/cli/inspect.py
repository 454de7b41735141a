"""`assay inspect`: what is in a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from assay.cli.inputs import ModelArgument, symbolic_dims
from assay.cli.output import CommandOutput, JsonOption, exit_code, reporting
from assay.cli.weights import inspect_checkpoint
from assay.errors import AssayError
from assay.units import size

Level = Literal["symbolic", "core", "milli"]
LevelOption = Annotated[
    Level | None,
    typer.Option("--level", help="Print the graph as text: the source's ops, core ops, or milli-ops alone."),
]
ELIDED_ABOVE = 8
"""Constants with more elements than this are printed without their content."""


def inspect(model: ModelArgument, level: LevelOption = None, json: JsonOption = None) -> None:
    """Show a model's inputs, outputs, dims, parameters and ops; with --level its graph as text.

    Of weights without a graph (GGUF, safetensors, torch.save, a folder of these): tensors, formats and facts.
    """
    from assay.frontends.checkpoint import is_checkpoint
    from assay.ir.printer import print_graph
    from assay.ops.lowering import lower
    from assay.runtime.load import read

    with reporting(json) as report:
        if is_checkpoint(model) and level is None:
            inspect_checkpoint(report, model)
            return
        source = read(model)
        symbolic = source.graph
        if level is not None:
            graph = symbolic if level == "symbolic" else lower(symbolic, source.facts, decomposed=level == "milli")
            text = print_graph(graph, ELIDED_ABOVE)
            report.text(text)
            report.result({"model": str(model), "level": level, "text": text})
            return
        levels, refusal = _levels(source)
        typed = levels.get("core", symbolic)
        data = {
            "model": str(model),
            "opsets": _opsets(model),
            "inputs": _signature(symbolic.input_names, symbolic.inputs),
            "outputs": _signature(typed.output_names, typed.outputs),
            "dims": symbolic_dims(source.inputs),
            "parameters": _parameters(symbolic),
            "ops": {name: _histogram(graph) for name, graph in levels.items()},
            "refusal": None if refusal is None else str(refusal),
        }
        _show(report, data)
        report.result(data)
    if refusal is not None:
        typer.echo(str(refusal), err=True)
        raise typer.Exit(exit_code(refusal))


def _levels(source: Any) -> tuple[dict[str, Any], AssayError | None]:
    """The graph on every level that it can be brought to, and what stood in the way."""
    from assay.ops.lowering import lower

    levels = {"symbolic": source.graph}
    try:
        levels["core"] = lower(source.graph, source.facts)
        levels["milli"] = lower(source.graph, source.facts, decomposed=True)
    except AssayError as error:
        return levels, error
    return levels, None


def _show(report: CommandOutput, data: dict[str, Any]) -> None:
    parameters = data["parameters"]
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())
    report.text(f"{data['model']}: opsets {opsets}" if opsets else data["model"])
    report.text(f"{parameters['count']:,} parameters in {parameters['tensors']} tensors, {size(parameters['bytes'])}")
    report.text()
    rows = [(kind, name, text) for kind in ("inputs", "outputs") for name, text in data[kind].items()]
    report.table("", ("", "name", "type"), [(kind.removesuffix("s"), name, text) for kind, name, text in rows])
    if data["dims"]:
        report.text()
        report.table("Symbolic dims", ("dim", "at"), [(dim, ", ".join(at)) for dim, at in data["dims"].items()])
    for level, counts in data["ops"].items():
        report.text()
        title = f"{level} level: {sum(counts.values())} nodes of {len(counts)} ops"
        report.table(title, ("op", ">nodes"), counts.items())


def _signature(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, str]:
    return {name: str(value.type) for name, value in zip(names, values, strict=True)}


def _histogram(graph: Any) -> dict[str, int]:
    """How often each op occurs, in bodies too; work that waits for the run counts as what it is for."""
    return dict(Counter(_name(node) for node in graph.walk()).most_common())


def _name(node: Any) -> str:
    return f"{node.regions[0].name} (lowered when it runs)" if node.op == "deferred" else node.op


def _parameters(graph: Any) -> dict[str, int]:
    """Initializers of the main graph and of bodies: how many tensors, elements and bytes."""
    graphs = [graph, *(region for node in graph.walk() for region in node.regions)]
    arrays = [array for each in graphs for array in each.constants.values()]
    return {
        "tensors": len(arrays),
        "count": sum(array.size for array in arrays),
        "bytes": sum(array.nbytes for array in arrays),
    }


def _opsets(path: Path) -> dict[str, int]:
    """The versions of the operator sets that an ONNX file imports; torch's ops have no such numbers."""
    if path.suffix.lower() != ".onnx":
        return {}
    import onnx

    imports = onnx.ModelProto.FromString(path.read_bytes()).opset_import
    return {entry.domain or "ai.onnx": entry.version for entry in imports}
