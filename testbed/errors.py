"""Why an experiment is not run, or not to its end."""

from __future__ import annotations


class Refusal(RuntimeError):
    """The experiment cannot be run here as asked; nothing was created. The message has the remedy."""


class DiskFull(RuntimeError):
    """What is recorded finds no room; whatever was recorded before is whole. The message has the folder and what is free."""


class Interrupted(BaseException):
    """Ctrl-C, or a polite signal to end."""
