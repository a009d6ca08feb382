"""A scheme at work on one DistributedDataParallel model: what happens to each bucket, and what a step cost.

For every bucket of gradients DDP calls `on_bucket` on the thread that runs backward. There it is encoded and its transfer
begun; a thread of the exchange's own waits for what arrives, decodes the mean into the bucket and completes DDP's future, so
that communication overlaps with the rest of backward as it does in stock DDP. When the last bucket of a step is done the
worker tells all others what it measured, and before the first bucket of the next step the policy decides on what all told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from workloads.exchange.exchange import Bucket, Transfer
from workloads.exchange.messages import Endpoint
from workloads.exchange.plan import NOTHING, Plan, plan_allreduce
from workloads.parts import Parts
from workloads.policies.policy import Decision, Sample
from workloads.pruning import Pruning
from workloads.schemes import ResolvedScheme
from workloads.sensing.agreement import Agreement, Measurement, combine
from workloads.sensing.tcpinfo import Connections, TcpSensor
from workloads.timing import Interval, total

EXCHANGE_THREADS = 2  # as many as gloo has for stock DDP
_SEED_STRIDE = 1_000_003  # a prime: workers' seeds never meet those of another run's seed


@dataclass
class StepTraffic:
    """What one step moved and when."""

    cost: Plan = NOTHING
    dense_bytes: int = 0
    elements: int = 0
    elements_sent: float = 0.0
    encodes: list[Interval] = field(default_factory=list)
    exchanges: list[Interval] = field(default_factory=list)
    decodes: list[Interval] = field(default_factory=list)
    decision: Decision = field(default_factory=Decision)
    connections: Connections | None = None  # what the kernel says of our TCP connections at the end of the step
    under_way: int = 0  # buckets on their way
    last_gradient: float = 0.0  # when backward handed out the last bucket; 0 before that

    @property
    def ratio(self) -> float:
        """Fraction of gradient elements sent."""
        return self.elements_sent / self.elements if self.elements else 1.0

    def add(self, cost: Plan, elements: int, dense_bytes: int, ratio: float) -> None:
        """Count one bucket."""
        self.cost += cost
        self.dense_bytes += dense_bytes
        self.elements += elements
        self.elements_sent += ratio * elements


@dataclass
class Stats:
    """Totals since attaching."""

    scheme: str
    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    messages: int = 0
    dense_bytes: int = 0
    encode_s: float = 0.0
    exchange_s: float = 0.0  # time during which at least one bucket was on its way, hidden behind backward or not
    decode_s: float = 0.0
    ratio: float = 1.0  # of the last step


class Attachment:
    """A scheme at work on one model."""

    def __init__(self, model: DistributedDataParallel, scheme: ResolvedScheme, parts: Parts, has_hook: bool, seed: int) -> None:
        self.model, self.scheme, self.parts = model, scheme, parts
        self.has_hook = has_hook  # DDP calls us; else its stock all-reduce runs and bytes are computed
        self.current = StepTraffic()
        self.totals = Stats(scheme.slug)
        self.encode_total_s = 0.0
        self._step, self._ended, self._now_s = 0, 0.0, 0.0
        self._stock_buckets: list[int] = []
        self._stock_forwards = 0
        self._lock = threading.Lock()
        self._counter = None if has_hook else model.register_forward_hook(self._on_stock_forward)
        if has_hook:
            group = _gloo_group(model.process_group)
            parts.exchange.bind(group, seed * _SEED_STRIDE + dist.get_rank(group))
            self._agreement = Agreement(Endpoint(group))
            self._sensor = TcpSensor()
            self._threads = ThreadPoolExecutor(EXCHANGE_THREADS, thread_name_prefix="exchange")
        self._pruning = Pruning(model, parts.pruned) if parts.pruned else None

    def on_bucket(self, given: dist.GradBucket) -> Future[Tensor]:
        """Encode one bucket, begin its transfer, and promise the mean."""
        if given.index() == 0:
            self._begin_step()
        step, parameters = self.current, given.parameters()
        if self._pruning is not None:
            self._pruning.apply(parameters, given.gradients())
        layout, sizes = tuple(p.data_ptr() for p in parameters), tuple(p.numel() for p in parameters)
        bucket = Bucket(given.index(), layout, sizes, given.buffer(), given)
        transfer = self.parts.exchange.transfer(bucket, step.decision.ratio)

        began = time.perf_counter()
        transfer.encode()
        encoded = time.perf_counter()
        transfer.start()
        with self._lock:
            step.encodes.append((began, encoded))
            self.encode_total_s += encoded - began
            step.under_way += 1
            if given.is_last():
                step.last_gradient = began
        promise: Future[Tensor] = Future()
        self._threads.submit(self._carry, transfer, bucket, step, encoded, promise)
        return promise

    def take(self) -> StepTraffic:
        """Return what the step just ended moved, and begin anew."""
        if not self.has_hook:
            return self._stock_step()
        taken, self.current = self.current, StepTraffic()
        self._account(taken)
        return taken

    def reset(self) -> None:
        """Forget residuals, what the policy learnt and all totals, as after a warm-up."""
        if self.has_hook:
            self._agreement.collect()
        self.parts.exchange.reset()
        self.parts.policy.reset()
        self.current, self.totals = StepTraffic(), Stats(self.scheme.slug)
        self._step, self._ended, self._now_s, self._stock_forwards = 0, 0.0, 0.0, 0
        if self._pruning is not None:
            self._pruning = Pruning(self.model, self.parts.pruned)

    def settle(self) -> None:
        """Add steps that nobody took to the totals."""
        if self.current.dense_bytes:
            self.take()
        forwards, self._stock_forwards = self._stock_forwards, 0
        for _ in range(forwards):
            self._account(self._stock_step())

    def close(self) -> None:
        """End the exchange's threads, stop counting."""
        if self._counter is not None:
            self._counter.remove()
        if self.has_hook:
            self._agreement.collect()
            self._threads.shutdown()
            self._sensor.close()

    def _carry(self, transfer: Transfer, bucket: Bucket, step: StepTraffic, started: float, promise: Future[Tensor]) -> None:
        """See one bucket home, on a thread of the exchange's own."""
        try:
            transfer.wait()
            arrived = time.perf_counter()
            transfer.decode()
            if bucket.flat.is_cuda:
                torch.cuda.synchronize(bucket.flat.device)  # the optimiser runs on another stream
            decoded = time.perf_counter()
            with self._lock:
                step.exchanges.append((started, arrived))
                step.decodes.append((arrived, decoded))
                step.add(transfer.plan(), bucket.flat.numel(), bucket.flat.numel() * bucket.flat.element_size(), transfer.ratio)
                step.under_way -= 1
                is_over = step.last_gradient > 0 and step.under_way == 0
            if is_over:
                self._end_step(step, decoded)
        except Exception as error:  # DDP raises it where backward waits
            promise.set_exception(error)  # type: ignore[arg-type]  # torch annotates it as a value
        else:
            promise.set_result(bucket.flat)

    def _begin_step(self) -> None:
        self.settle()
        policy = self.parts.policy
        if self._step == 0 or not policy.senses:
            decision = policy.decide(Sample(self._step))
        else:
            measurements = self._agreement.collect()
            self._now_s += max(m.step_s for m in measurements)
            decision = policy.decide(combine(measurements, self._now_s))
        self.current = StepTraffic(decision=decision)

    def _end_step(self, step: StepTraffic, now: float) -> None:
        encode_s = total(step.encodes)
        step.connections = self._sensor.read()
        if self.parts.policy.senses:
            measurement = Measurement(
                step=self._step,
                ratio=step.decision.ratio,
                dense_bytes=step.dense_bytes,
                bytes_sent=step.cost.bytes_sent,
                exchange_s=total(step.exchanges),
                compute_s=max(0.0, step.last_gradient - self._ended - encode_s) if self._ended else 0.0,
                step_s=now - self._ended if self._ended else 0.0,
                retransmits=-1 if step.connections is None else step.connections.retransmits,
            )
            step.cost += self._agreement.tell(measurement)
        self._ended, self._step = now, self._step + 1

    def _on_stock_forward(self, model: object, inputs: object, output: object) -> None:
        # the stock path tells nobody about its steps: count the forward passes whose backward will exchange gradients
        if self.model.training and torch.is_grad_enabled() and self.model.require_backward_grad_sync:
            self._stock_forwards += 1

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
            step.add(plan_allreduce(size, world_size), 1, size, 1.0)
        return step

    def _account(self, step: StepTraffic) -> None:
        totals = self.totals
        totals.steps += 1
        totals.bytes_sent += step.cost.bytes_sent
        totals.bytes_received += step.cost.bytes_received
        totals.messages += step.cost.messages
        totals.dense_bytes += step.dense_bytes
        totals.encode_s += total(step.encodes)
        totals.exchange_s += total(step.exchanges)
        totals.decode_s += total(step.decodes)
        totals.ratio = step.ratio


def _gloo_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Return a group of the same workers that speaks gloo: payloads are in main memory, whatever the gradients' device."""
    if dist.get_backend(group) == "gloo":
        return group
    made: dist.ProcessGroup = dist.new_group(dist.get_process_group_ranks(group), backend="gloo")
    return made


def _bucket_bytes(model: DistributedDataParallel, record: Mapping[str, object]) -> list[int]:
    """Return DDP's bucket sizes, by its own record (one bucket if it keeps none)."""
    text = str(record.get("rebuilt_bucket_sizes") or record.get("bucket_sizes") or "")
    sizes = [int(part) for part in text.split(",") if part.strip()]
    dense = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return sizes if sum(sizes) == dense else [dense]
