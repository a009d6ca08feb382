"""Let numba read the kernels that were compiled when the image was built: python -m baked_kernels compiles them.

numba passes over a cache folder it cannot write to, and a worker's container has a read-only root. Compiled kernels are good on the
kind of processor they were compiled on; on another one numba compiles anew, into its usual places.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from llvmlite import binding as llvm
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator


class BakedKernels(UserProvidedCacheLocator):
    """The kernels of NUMBA_CACHE_DIR, if they fit; named in NUMBA_CACHE_LOCATOR_CLASSES."""

    def ensure_cache_path(self) -> None:
        """Be passed over, by OSError, where kernels of this folder would have to be compiled anew and could not be written."""
        if _mark().read_text() != _processor():
            raise OSError("these kernels were compiled for another processor")


def bake() -> None:
    """Compile every kernel that workers use."""
    config.CACHE_LOCATOR_CLASSES = "UserProvidedCacheLocator"
    for module in pkgutil.walk_packages(importlib.import_module("workloads").__path__, "workloads."):
        importlib.import_module(module.name)
    _mark().write_text(_processor())


def _mark() -> Path:
    return Path(config.CACHE_DIR) / "processor"


def _processor() -> str:
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


if __name__ == "__main__":
    bake()
