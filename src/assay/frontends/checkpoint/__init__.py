"""Checkpoints: files of weights without a graph. `open_checkpoint` reads every kind, and runs nothing of them;
`load_model` makes graphs of those whose family has a recipe."""

from assay.frontends.checkpoint.bundle import save_bundle as save_bundle
from assay.frontends.checkpoint.imported import ImportedModel as ImportedModel
from assay.frontends.checkpoint.imported import TokenizerSource as TokenizerSource
from assay.frontends.checkpoint.models import load_model as load_model
from assay.frontends.checkpoint.reading import is_checkpoint as is_checkpoint
from assay.frontends.checkpoint.reading import open_checkpoint as open_checkpoint
from assay.frontends.checkpoint.stored import Checkpoint as Checkpoint
from assay.frontends.checkpoint.stored import StoredTensor as StoredTensor
