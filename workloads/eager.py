"""Keep torch's compiler out of workers, which never compile: importing it is most of what a worker's start would cost.

torch itself imports what only compiling and tensors without data need: `torch._meta_registrations`, the shapes that operators return,
and `torch.export`. DDP and optimisers import torch._dynamo, 800 modules, only to tell it to leave them alone.
`import_torch` puts modules in their places that answer what is asked of them where nothing is compiled; whatever else is asked of any of
them loads all the real ones. Tensors without data (device "meta") are what cannot ask: some operators, convolutions among them, have no
shapes for them until somebody imports a name from `torch._meta_registrations`. Workers have none.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

DDP_MODE = "ddp_optimizer"  # its default; it has a meaning only where a model is compiled


class _StandIn(ModuleType):
    """A module that knows some names and loads the real one for all others."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # which inspect asks of every module; the path leads to modules in it
            raise AttributeError(name)
        _load_real()
        return getattr(importlib.import_module(self.__name__), name)


def import_torch() -> None:
    """Import torch with modules that stand in for all of its compiler that is not imported yet."""
    for module in (
        _StandIn("torch._meta_registrations"),
        _StandIn("torch.export"),
        _StandIn(
            "torch._dynamo",
            disable=_leave_alone,
            graph_break=lambda: None,
            utils=_StandIn("torch._dynamo.utils", get_optimize_ddp_mode=lambda: DDP_MODE),
            trace_rules=_StandIn("torch._dynamo.trace_rules", clear_lru_cache=lambda: None),
        ),
    ):
        sys.modules.setdefault(module.__name__, module)
    import torch
    from torch._opaque_base import OpaqueBaseMeta

    torch._C._set_generator_metaclass(OpaqueBaseMeta)  # without which there is no Generator; else done on the way to the shapes


def _leave_alone(fn: Callable[..., Any] | None = None, recursive: bool = True, **_: Any) -> Any:
    return _leave_alone if fn is None else fn


def _load_real() -> None:
    """Put the real modules in the places of all stand-ins."""
    names = [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]
    for name in names:
        del sys.modules[name]
    for name in names:
        importlib.import_module(name)
