"""Tenstorrent cards through the library ttnn."""
