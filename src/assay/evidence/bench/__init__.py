"""Benchmarks: Assay beside its peers, in turns."""
