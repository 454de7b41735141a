"""Checkpoints: files of weights without a graph. `open_checkpoint` reads every kind, and runs nothing of them."""

from assay.frontends.checkpoint.reading import is_checkpoint as is_checkpoint
from assay.frontends.checkpoint.reading import open_checkpoint as open_checkpoint
from assay.frontends.checkpoint.stored import Checkpoint as Checkpoint
from assay.frontends.checkpoint.stored import StoredTensor as StoredTensor
