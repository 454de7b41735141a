"""Assay as a backend of `torch.compile`."""
