"""Keep torch's compiler out of workers, which never compile: importing it is a third of what a worker's start costs.

DDP and optimisers import torch._dynamo, 800 modules, only to tell it to leave them alone. `stand_in` puts a module in its place that
answers these four requests as the compiler would where nothing is compiled; whatever else is asked of it loads the real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"
DDP_MODE = "ddp_optimizer"  # its default; it has a meaning only where a model is compiled


class _StandIn(ModuleType):
    """A module that knows some names and loads the real one for all others."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        real = _real()
        for part in self.__name__.removeprefix(NAME).split(".")[1:]:
            real = getattr(real, part)
        return getattr(real, name)


def stand_in() -> None:
    """Stand in for the compiler, unless it is there already."""
    if NAME in sys.modules:
        return
    sys.modules[NAME] = _StandIn(
        NAME,
        disable=_leave_alone,
        graph_break=lambda: None,
        utils=_StandIn(f"{NAME}.utils", get_optimize_ddp_mode=lambda: DDP_MODE),
        trace_rules=_StandIn(f"{NAME}.trace_rules", clear_lru_cache=lambda: None),
    )


def _leave_alone(fn: Callable[..., Any] | None = None, recursive: bool = True, **_: Any) -> Any:
    return _leave_alone if fn is None else fn


def _real() -> ModuleType:
    if isinstance(sys.modules.get(NAME), _StandIn):
        del sys.modules[NAME]
    return importlib.import_module(NAME)
