"""Comparing results: of arrays, of models, of single nodes, and what rounding may do."""
