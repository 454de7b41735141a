"""`assay embed`: vectors of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.chains import TargetOption, chosen, where_it_ran
from assay.cli.output import JsonOption, reporting
from assay.errors import BadArgument
from assay.needs import require

ModelArgument = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A folder or a GGUF file of BERT's kind; minilm-l6-v2.", show_default=False),
]
TextsArgument = Annotated[list[str], typer.Argument(metavar="TEXT…", help="The texts.", show_default=False)]
FileOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save the vectors there, as a .npy file.")
]


def embed(
    model: ModelArgument,
    texts: TextsArgument,
    target: TargetOption = None,
    output: FileOption = None,
    json: JsonOption = None,
) -> None:
    """Turn texts into vectors, and show how near they lie to each other."""
    import numpy as np

    from assay.jobs.pipelines import open_embedder
    from assay.runtime.options import SessionOptions

    with reporting(json) as report:
        chain = chosen(target)
        require("tokenizers")
        if output is not None and output.suffix != ".npy":
            raise BadArgument(f"'{output}' is no name of a .npy file")
        vectors = open_embedder(model, SessionOptions(target=chain))(texts)
        near = vectors @ vectors.T
        rows = [(at + 1, text, *(f"{value:.3f}" for value in near[at])) for at, text in enumerate(texts)]
        numbers = [f">{at + 1}" for at in range(len(texts))]
        report.table(f"{len(texts)} vectors of {vectors.shape[1]} numbers; cosines", (">", "text", *numbers), rows)
        report.text(f"[on {where_it_ran(chain)}]")
        if output is not None:
            np.save(output, vectors)
        report.result({"model": str(model), "target": chain, "texts": texts, "vectors": vectors.tolist()})
