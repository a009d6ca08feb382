"""Put a compression scheme on any PyTorch DistributedDataParallel model.

    from workloads.hooks import attach, stats
    attach(ddp_model, "topk-0.1")

How it works: for every bucket of gradients DDP calls the hook on the thread that runs backward. It (1) asks the policy,
once a step, how much to send, (2) packs the bucket, (3) starts the collective, and (4) returns a future that, when all has
arrived, unpacks the mean into the bucket. "none" registers no hook at all: DDP's own all-reduce and overlap, bytes by formula.

DDP cannot unregister a hook. So the hook we register is a switch: `detach` turns it to a plain dense all-reduce, `attach`
turns it to another scheme. A model that once had a hook therefore never has the stock path again.
"""

# no `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from workloads.exchange.plan import Plan, plan_allreduce
from workloads.parts import Parts
from workloads.policies.policy import Decision, Sample
from workloads.schemes import ResolvedScheme, resolve
from workloads.timing import Interval, total

_ATTRIBUTE = "_gradient_compression"  # where the attachment lives on the model
_SWITCH = _ATTRIBUTE + "_switch"
FLOAT_BYTES = 4


@dataclass
class StepTraffic:
    """What one step moved and when."""

    bytes_sent: int = 0
    bytes_received: int = 0
    dense_bytes: int = 0
    rounds: int = 0
    messages: int = 0
    elements_sent: float = 0.0
    encodes: list[Interval] = field(default_factory=list)
    exchanges: list[Interval] = field(default_factory=list)
    decodes: list[Interval] = field(default_factory=list)
    decision: Decision = field(default_factory=Decision)

    @property
    def ratio(self) -> float:
        """Fraction of gradient elements sent."""
        return self.elements_sent * FLOAT_BYTES / self.dense_bytes if self.dense_bytes else 1.0

    def add(self, plan: Plan, dense_bytes: int, ratio: float) -> None:
        """Count one bucket."""
        self.bytes_sent += plan.bytes_sent
        self.bytes_received += plan.bytes_received
        self.rounds += plan.rounds
        self.messages += plan.messages
        self.dense_bytes += dense_bytes
        self.elements_sent += ratio * dense_bytes / FLOAT_BYTES


@dataclass
class Stats:
    """Totals since attaching."""

    scheme: str
    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    dense_bytes: int = 0
    encode_s: float = 0.0
    decode_s: float = 0.0


class Attachment:
    """A scheme at work on one model."""

    def __init__(self, model: DistributedDataParallel, scheme: ResolvedScheme, parts: Parts, has_hook: bool) -> None:
        self.model, self.scheme, self.parts = model, scheme, parts
        self.parts.exchange.group = model.process_group
        self.has_hook = has_hook  # DDP calls us; else its stock all-reduce runs and bytes are computed
        self.current = StepTraffic()
        self.totals = Stats(scheme.slug)
        self.encode_total_s = 0.0
        self._last = StepTraffic()
        self._step = 0
        self._began = 0.0
        self._stock_buckets: list[int] = []
        self._counter = None if has_hook else model.register_forward_hook(self._on_stock_forward)

    def on_bucket(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Compress, exchange and average one bucket."""
        if bucket.index() == 0:
            self._begin_step()
        step, exchange, flat = self.current, self.parts.exchange, bucket.buffer()
        layout = tuple(p.data_ptr() for p in bucket.parameters())

        encode_start = time.perf_counter()
        packed = exchange.pack(bucket.index(), layout, flat, step.decision.ratio)
        sent = time.perf_counter()
        step.encodes.append((encode_start, sent))
        self.encode_total_s += sent - encode_start
        step.add(exchange.plan(packed), flat.numel() * FLOAT_BYTES, step.decision.ratio)
        future, received = exchange.start(packed)

        def finish(done: Future[Tensor]) -> Tensor:
            done.value()  # raises what went wrong in the collective
            arrived = time.perf_counter()
            exchange.unpack(received, flat)
            step.exchanges.append((sent, arrived))
            step.decodes.append((arrived, time.perf_counter()))
            return flat

        return future.then(finish)

    def take(self) -> StepTraffic:
        """Return what the step just ended moved, and begin anew."""
        if not self.has_hook:
            return self._stock_step()
        taken, self.current = self.current, StepTraffic()
        self._account(taken)
        return taken

    def reset(self) -> None:
        """Forget residuals, what the policy learnt and all totals, as after a warm-up."""
        self.parts.exchange.reset()
        self.parts.policy.reset()
        self.current, self.totals = StepTraffic(), Stats(self.scheme.slug)
        self._step, self._began, self._last = 0, 0.0, StepTraffic()

    def settle(self) -> None:
        """Add a step that nobody took to the totals."""
        if self.current.dense_bytes:
            self.take()

    def close(self) -> None:
        """Stop counting."""
        if self._counter is not None:
            self._counter.remove()

    def _on_stock_forward(self, model: object, inputs: object, output: object) -> None:
        # the stock path tells nobody about its steps: count the forward passes whose backward will exchange gradients
        if self.model.training and torch.is_grad_enabled() and self.model.require_backward_grad_sync:
            self._account(self._stock_step())

    def _stock_step(self) -> StepTraffic:
        if not self._stock_buckets:
            record = self.model._get_ddp_logging_data()
            buckets = _bucket_bytes(self.model, record)
            if record.get("has_rebuilt_buckets"):  # final from now on
                self._stock_buckets = buckets
        else:
            buckets = self._stock_buckets
        step, world_size = StepTraffic(), dist.get_world_size(self.model.process_group)
        for size in buckets:
            step.add(plan_allreduce(size, world_size), size, 1.0)
        return step

    def _begin_step(self) -> None:
        self.settle()
        now, last = time.perf_counter(), self._last
        sample = Sample(
            step=self._step,
            dense_bytes=last.dense_bytes,
            bytes_sent=last.bytes_sent,
            bytes_received=last.bytes_received,
            exchange_s=total(last.exchanges),
            step_s=now - self._began if self._began else 0.0,
        )
        self.current = StepTraffic(decision=self.parts.policy.decide(sample))
        self._began, self._step = now, self._step + 1

    def _account(self, step: StepTraffic) -> None:
        self._last = step
        self.totals.steps += 1
        self.totals.bytes_sent += step.bytes_sent
        self.totals.bytes_received += step.bytes_received
        self.totals.dense_bytes += step.dense_bytes
        self.totals.encode_s += total(step.encodes)
        self.totals.decode_s += total(step.decodes)


class _Switch:
    """The hook DDP keeps: hands every bucket to whatever is attached."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment


def _hook(switch: _Switch, bucket: dist.GradBucket) -> Future[Tensor]:
    return switch.attachment.on_bucket(bucket)


def attach(model: DistributedDataParallel, scheme: str | dict[str, object]) -> Attachment:
    """Make a DDP model exchange gradients by a scheme, given as "topk-0.1" or {"scheme": "topk", "ratio": 0.1}."""
    resolved = resolve(scheme)
    parts = resolved.build()
    switch: _Switch | None = getattr(model, _SWITCH, None)
    attachment = Attachment(model, resolved, parts, has_hook=switch is not None or not parts.stock)
    previous: Attachment | None = getattr(model, _ATTRIBUTE, None)
    if previous is not None:
        previous.close()
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


def _bucket_bytes(model: DistributedDataParallel, record: Mapping[str, object]) -> list[int]:
    """Return DDP's bucket sizes, by its own record (one bucket if it keeps none)."""
    text = str(record.get("rebuilt_bucket_sizes") or record.get("bucket_sizes") or "")
    sizes = [int(part) for part in text.split(",") if part.strip()]
    dense = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return sizes if sum(sizes) == dense else [dense]
