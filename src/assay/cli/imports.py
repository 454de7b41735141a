"""`assay import`: weights as a bundle of graphs, weights and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from assay.cli.output import JsonOption, reporting
from assay.units import size

SourceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A folder of Hugging Face's form, a GGUF file, a file of torch.save, or a name such as smollm2-135m.",
        show_default=False,
    ),
]
FolderOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the bundle goes: a new folder.")
]
LogitsOption = Annotated[
    Literal["all", "last"], typer.Option("--logits", help="Give the logits of all positions of a call, or of the last.")
]
OnnxOption = Annotated[bool, typer.Option("--onnx", help="Write the graphs as ONNX files, too.")]


def import_weights(
    model: SourceArgument,
    output: FolderOption,
    logits: LogitsOption = "all",
    onnx: OnnxOption = False,
    json: JsonOption = None,
) -> None:
    """Make graphs of weights, and save them as text beside the weights and the tokenizer."""
    from assay.frontends.checkpoint import load_model, save_bundle
    from assay.zoo.checkpoints import checkpoint_path

    with reporting(json) as report:
        found = load_model(checkpoint_path(model), logits=logits)
        save_bundle(found, output)
        if onnx:
            from assay.frontends.onnx.saving import save_graph

            for name, graph in found.graphs.items():
                save_graph(graph, output / f"{name}.onnx")
        files = {each.name: each.stat().st_size for each in sorted(output.iterdir())}
        report.text(f"{found.family}: {', '.join(found.graphs)}")
        report.table(str(output), ("file", ">bytes"), [(name, size(count)) for name, count in files.items()])
        report.result({"model": str(model), "family": found.family, "graphs": list(found.graphs), "files": files})
