"""The one error a reader of results folders must expect."""


class ResultsError(Exception):
    """A results folder that cannot be read at all; the sentence says what to do about it."""
