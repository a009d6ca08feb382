"""What a worker's image says of itself, so that no run mixes versions: python -m testbed.containers.identity prints it.

An image carries two labels: its Python, whose wheels it was built with, and a digest of the code that workers run. An image made
from other sources than those of the testbed that starts it would train by other rules than its manifest says.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

PYTHON_LABEL = "netsense-testbed.python"
SOURCE_LABEL = "netsense-testbed.source"
DIGITS = 12

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("workloads", "controller")  # what a worker imports


def python_version() -> str:
    """Return this Python's version as far as wheels depend on it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def source_digest(root: Path = _ROOT) -> str:
    """Return a short digest of the code that workers run."""
    digest = hashlib.sha256()
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:DIGITS]


if __name__ == "__main__":
    print(python_version(), source_digest())
