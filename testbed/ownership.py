"""Give files that root made to the user behind sudo."""

from __future__ import annotations

import os
from pathlib import Path


def give_to_caller(folder: Path, below: bool = True) -> None:
    """Give a folder, if it is there, and all in it (unless `below` is false) to the user who called sudo, if one did."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ or not folder.exists():
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1"))
    for path in (folder, *(folder.rglob("*") if below else ())):
        os.chown(path, *owner, follow_symlinks=False)
