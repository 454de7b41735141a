"""What generators of random programs and of random models have in common."""


class NotPossible(Exception):
    """What was drawn does not fit what there is."""
