"""`assay demo`: a real model with real weights, from sound to text."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from assay.cli.chains import TargetOption, chosen
from assay.cli.output import JsonOption, progress, reporting

Model = Literal["whisper", "moonshine"]
ModelArgument = Annotated[
    Model, typer.Argument(help="whisper: torch.compile, compared with eager. moonshine: ONNX, with onnxruntime.")
]


def demo(model: ModelArgument = "whisper", target: TargetOption = None, json: JsonOption = None) -> None:
    """Transcribe a spoken clip with a real model; show where every op ran, and how near its own runtime comes."""
    from assay.cli import demo_moonshine, demo_whisper
    from assay.cli.demo_times import DemoProgress

    shows = {"whisper": demo_whisper.show, "moonshine": demo_moonshine.show}
    with reporting(json) as report, progress("loading") as bar:
        shows[model](report, chosen(target), DemoProgress(bar))
