"""Give files that root made to the user behind sudo."""

from __future__ import annotations

import os
from pathlib import Path


def give_to_caller(folder: Path) -> None:
    """Give a folder and all in it to the user who called sudo, if one did."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    owner = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1"))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, *owner, follow_symlinks=False)
