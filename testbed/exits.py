"""The exit codes, and which of them a set of runs deserves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FAILED = 1
BAD_INPUT = 2
INVALID = 3  # all runs complete, some not to be believed
INTERRUPTED = 130


def verdict(manifest: Path) -> dict[str, Any]:
    """Return how a run ended, by its manifest."""
    content = json.loads(manifest.read_text())
    return {key: content[key] for key in ("status", "valid", "reason", "invalid_reasons") if key in content}


def exit_code(manifests: Iterable[Path]) -> int:
    """Return the code that tells whether all runs are complete and to be believed."""
    verdicts = [verdict(path) for path in manifests if path.exists()]
    if any(one["status"] != "complete" for one in verdicts):
        return FAILED
    return 0 if all(one["valid"] for one in verdicts) else INVALID
