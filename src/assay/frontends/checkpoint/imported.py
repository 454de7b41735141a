"""What `load_model` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.frontends.checkpoint.stored import Checkpoint
from assay.ir.graph import Graph


@dataclass(frozen=True)
class TokenizerSource:
    """What tells how text becomes tokens: files beside the weights by name, and facts in the file of the weights
    itself (those of GGUF, by what follows `tokenizer.`)."""

    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class ImportedModel:
    """A model made of a checkpoint: its family, the typed configuration, and its graphs by name.

    A decoder's graph (`decoder`) takes `tokens` i64[batch, step] and its states, and gives `logits` and the same states
    in the same order. Caches are [batch, heads, past, width] and come back longer by `step`; in a first call `past` is
    zero. A further input of the decoder of an encoder-decoder has the name of an output of its `encoder`.
    """

    family: str
    configuration: Any
    graphs: Mapping[str, Graph]
    tokenizer: TokenizerSource
    checkpoint: Checkpoint

    @cached_property
    def digest(self) -> str:
        """A hash of the files that were read, as they are when it is asked for first; reads them all."""
        return self.checkpoint.digest()
