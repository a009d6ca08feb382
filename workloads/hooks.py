"""Put a compression scheme on any PyTorch DistributedDataParallel model.

    from workloads.hooks import attach, stats
    attach(ddp_model, "netsense")

"none" registers no hook at all: DDP's own all-reduce and overlap, bytes by formula. Every other scheme is at work in attachment.py.

DDP cannot unregister a hook. So the hook we register is a switch: `detach` turns it to a plain dense all-reduce, `attach`
turns it to another scheme. A model that once had a hook therefore never has the stock path again.
"""

# no `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves

import warnings

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from workloads.attachment import Attachment
from workloads.clock import Clock
from workloads.schemes import resolve
from workloads.traffic import Stats

_ATTRIBUTE = "_gradient_compression"  # where the attachment lives on the model
_SWITCH = _ATTRIBUTE + "_switch"


class _Switch:
    """The hook DDP keeps: hands every bucket to whatever is attached."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment


def _hook(switch: _Switch, bucket: dist.GradBucket) -> Future[Tensor]:
    return switch.attachment.on_bucket(bucket)


def attach(
    model: DistributedDataParallel,
    scheme: str | dict[str, object],
    seed: int = 0,
    *,
    telemetry: str | None = None,
    clock: Clock | None = None,
) -> Attachment:
    """Make a DDP model exchange gradients by a scheme, given as "topk-0.1" or {"scheme": "topk", "ratio": 0.1}; on all ranks alike.

    `telemetry` is the path of the controller's board (controller/board.py), for the schemes that it assists. Without it "netsense-sdn"
    does as "netsense" does, and says so. `clock` is for the testbed's own dilated runs.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"wrap the model in DistributedDataParallel before attaching a scheme; this is a {type(model).__name__}")
    resolved = resolve(scheme)
    parts = resolved.build()
    if parts.policy.assisted and not telemetry:
        warnings.warn(f"{resolved.slug} was given no telemetry: it senses by itself, as without a controller", stacklevel=2)
    previous: Attachment | None = getattr(model, _ATTRIBUTE, None)
    if previous is not None:
        previous.close()
    switch: _Switch | None = getattr(model, _SWITCH, None)
    attachment = Attachment(model, resolved, parts, switch is not None or not parts.stock, seed, telemetry, clock or Clock())
    if switch is not None:
        switch.attachment = attachment
    elif not parts.stock:
        switch = _Switch(attachment)
        model.register_comm_hook(switch, _hook)
        setattr(model, _SWITCH, switch)
    setattr(model, _ATTRIBUTE, attachment)
    return attachment


def detach(model: DistributedDataParallel) -> None:
    """Go back to dense averaging: the stock path if no hook was ever registered, else a plain all-reduce by our hook."""
    attach(model, "none")


def stats(model: DistributedDataParallel) -> Stats:
    """Return the totals of the scheme attached to a model."""
    attachment: Attachment | None = getattr(model, _ATTRIBUTE, None)
    if attachment is None:
        raise ValueError("nothing is attached to this model: call attach(model, scheme) first")
    attachment.settle()
    return attachment.totals
