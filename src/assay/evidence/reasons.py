"""Exceptions in few words."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of what an exception says that is not empty; empty if it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def summary(error: BaseException) -> str:
    """An exception in one line, with the name of its class."""
    return f"{type(error).__name__}: {first_line(error)}"
