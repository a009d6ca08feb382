"""A scheme at work on one DistributedDataParallel model: what happens to each bucket, and what a step cost.

For every bucket of gradients DDP calls `on_bucket` on the thread that runs backward. There it is encoded and its transfer
begun; the courier's threads wait for what arrives, decode the mean into the bucket and complete DDP's future, so that
communication overlaps with the rest of backward as it does in stock DDP. When the last bucket of a step is done the worker
tells all others what it measured, and before the first bucket of the next step the policy decides on what all told.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from workloads.clock import Clock
from workloads.exchange.courier import Courier
from workloads.exchange.exchange import Bucket, Transfer
from workloads.exchange.messages import Endpoint
from workloads.exchange.plan import plan_allreduce
from workloads.membership import group_of_its_own, require_the_same_everywhere
from workloads.parts import Parts
from workloads.policies.policy import Sample
from workloads.pruning import Pruning
from workloads.schemes import ResolvedScheme
from workloads.sensing.agreement import Agreement, Measurement, combine
from workloads.sensing.tcpinfo import TcpSensor
from workloads.sensing.telemetry import UNKNOWN, PathSensor
from workloads.timing import Interval, clip, total
from workloads.traffic import Stats, StepTraffic

_SEED_STRIDE = 1_000_003  # a prime: workers' seeds never meet those of another run's seed


class ExchangeError(RuntimeError):
    """A bucket that could not be exchanged."""


class Attachment:
    """A scheme at work on one model."""

    def __init__(
        self,
        model: DistributedDataParallel,
        scheme: ResolvedScheme,
        parts: Parts,
        has_hook: bool,
        seed: int,
        telemetry: str | None,
        clock: Clock,
    ) -> None:
        self.model, self.scheme, self.parts, self.clock = model, scheme, parts, clock
        self.has_hook = has_hook  # DDP calls us; else its stock all-reduce runs and bytes are computed
        self.current = StepTraffic()
        self.totals = Stats(scheme.slug)
        self.encode_total_s = self.encode_cpu_s = 0.0  # by the clock; of the machine's CPU
        self._lock = threading.Lock()
        self._step, self._ended, self._now_s = 0, 0.0, 0.0
        self._stock_buckets: list[int] = []
        self._stock_forwards = 0
        self._closed = False
        self._unfinished: set[_BucketErrand] = set()  # gloo must not lose the buffers of receives that are still posted
        self._counter = None if has_hook else model.register_forward_hook(self._on_stock_forward)
        if has_hook:
            self._group = group_of_its_own(model.process_group)
            require_the_same_everywhere(self._group, scheme, seed)
            self.rank = dist.get_rank(self._group)
            parts.exchange.clock = clock
            parts.exchange.bind(self._group, seed * _SEED_STRIDE + self.rank)
            self._agreement = Agreement(Endpoint(self._group))
            self._sensor = TcpSensor(clock.dilation)
            self._path = PathSensor(telemetry, self.rank, clock.dilation) if telemetry and parts.policy.assisted else None
            self._courier = Courier()
        self._pruning = Pruning(model, parts.pruned) if parts.pruned else None

    def on_bucket(self, given: dist.GradBucket) -> Future[Tensor]:
        """Encode one bucket, begin its transfer, and promise the mean."""
        if self._closed or self._courier.failure is not None:
            said = f"{self.scheme.slug}: detached, or failed in an earlier step; attach a scheme again before training on"
            raise ExchangeError(said) from self._courier.failure
        if given.index() == 0:
            self._begin_step()
        step, parameters = self.current, given.parameters()
        if self._pruning is not None:
            self._pruning.apply(parameters, given.gradients())
        layout, sizes = tuple(p.data_ptr() for p in parameters), tuple(p.numel() for p in parameters)
        bucket = Bucket(given.index(), layout, sizes, given.buffer(), given)
        errand = _BucketErrand(self, step, bucket, self.parts.exchange.transfer(bucket, step.decision.ratio))
        self._unfinished.add(errand)

        began = self.clock.now()
        try:
            with self.clock.work() as work:
                errand.transfer.encode()
            encoded = errand.started = self.clock.now()
            errand.transfer.start()
        except Exception as error:  # the others wait for this bucket: nothing can follow
            self._courier.failure = error
            raise
        with self._lock:
            step.encodes.append((began, encoded))
            self.encode_total_s += encoded - began
            self.encode_cpu_s += work.cpu_s
            step.under_way += 1
            if given.is_last():
                step.last_gradient = began
        self._courier.submit(errand)
        return errand.promise

    def take(self) -> StepTraffic:
        """Return what the step just ended moved, and begin anew."""
        if not self.has_hook:
            return self._stock_step()
        if self.current.dense_bytes:
            self.current.over.wait()
        taken, self.current = self.current, StepTraffic()
        self._account(taken)
        return taken

    def reset(self) -> None:
        """Forget residuals, what the policy learnt and all totals, as after a warm-up."""
        if self.has_hook:
            self.settle()
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
        """End the threads, leave the group, stop counting."""
        if self._closed:
            return
        self._closed = True
        if self._counter is not None:
            self._counter.remove()
        if self.has_hook:
            self.settle()
            if self._courier.failure is None:
                self._agreement.collect()
            self._courier.close()
            self._sensor.close()
            if self._path is not None:
                self._path.close()
            if dist.is_initialized() and dist.get_world_size(self._group) == dist.get_world_size():
                dist.destroy_process_group(self._group)

    def bucket_is_home(self, errand: _BucketErrand, arrived: float, decode: Interval) -> None:
        """Account for a bucket whose mean is there; the last one ends the step, off the thread that trains."""
        step, flat = errand.step, errand.bucket.flat
        with self._lock:
            step.exchanges.append((errand.started, arrived))
            step.decodes.append(decode)
            step.add(errand.transfer.plan(), flat.numel(), flat.numel() * flat.element_size(), errand.transfer.ratio)
            step.under_way -= 1
            is_over = step.last_gradient > 0 and step.under_way == 0
        self._unfinished.discard(errand)
        errand.promise.set_result(flat)
        if is_over:
            self._end_step(step, decode[1])

    def _begin_step(self) -> None:
        self.settle()
        policy = self.parts.policy
        began = self.clock.now()
        sample = Sample(self._step)
        if self._step > 0 and policy.senses:
            measurements = self._agreement.collect()
            self._now_s += max(m.step_s for m in measurements)
            sample = combine(measurements, self._now_s)
        self.current = StepTraffic(sample=sample, decision=policy.decide(sample), agreeing_s=self.clock.now() - began)

    def _end_step(self, step: StepTraffic, now: float) -> None:
        step.connections = self._sensor.read()
        if self.parts.policy.senses:
            path = UNKNOWN if self._path is None else self._path.read(step.cost.bytes_sent)
            encoding_s = total(clip(step.encodes, self._ended, step.last_gradient))
            measurement = Measurement(
                step=self._step,
                ratio=step.decision.ratio,
                dense_bytes=step.dense_bytes,
                bytes_sent=step.cost.bytes_sent,
                exchange_s=total(step.exchanges),
                compute_s=max(0.0, step.last_gradient - self._ended - encoding_s - step.agreeing_s) if self._ended else 0.0,
                step_s=now - self._ended if self._ended else 0.0,
                retransmits=-1 if step.connections is None else step.connections.retransmits,
                rounds=step.cost.rounds,
                available_bps=path.available_bps,
                backlog_bytes=path.backlog_bytes,
                base_rtt_s=path.base_rtt_s,
                telemetry_age_s=path.age_s,
            )
            step.cost += self._agreement.tell(measurement)
        self._ended, self._step = now, self._step + 1
        step.over.set()

    def _on_stock_forward(self, model: object, inputs: object, output: object) -> None:
        # the stock path tells nobody about its steps: count the forward passes whose backward will exchange gradients
        if torch.is_grad_enabled() and self.model.require_backward_grad_sync:
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


class _BucketErrand:
    """One bucket in the courier's hands."""

    def __init__(self, attachment: Attachment, step: StepTraffic, bucket: Bucket, transfer: Transfer) -> None:
        self.step, self.bucket, self.transfer = step, bucket, transfer
        self.promise: Future[Tensor] = Future()
        self.started = self._arrived = 0.0
        self._attachment = attachment

    def wait(self) -> None:
        """Block until everything has arrived."""
        self.transfer.wait()
        self._arrived = self._attachment.clock.now()

    def finish(self) -> None:
        """Decode, and keep the promise."""
        clock = self._attachment.clock
        began = clock.now()
        with clock.work():
            self.transfer.decode()
            if self.bucket.flat.is_cuda:
                torch.cuda.synchronize(self.bucket.flat.device)  # the optimiser runs on another stream
        self._attachment.bucket_is_home(self, self._arrived, (began, clock.now()))

    def fail(self, error: Exception) -> None:
        """Break the promise; DDP raises it where backward waits."""
        attachment = self._attachment
        where = f"{attachment.scheme.slug}, rank {attachment.rank}, bucket {self.bucket.index}"
        told = ExchangeError(f"{where}: {type(error).__name__}: {error}")
        if not self.promise.done():
            self.promise.set_exception(told)  # type: ignore[arg-type]  # torch annotates it as a value
        self.step.over.set()


def _bucket_bytes(model: DistributedDataParallel, record: Mapping[str, object]) -> list[int]:
    """Return DDP's bucket sizes, by its own record (one bucket if it keeps none)."""
    text = str(record.get("rebuilt_bucket_sizes") or record.get("bucket_sizes") or "")
    sizes = [int(part) for part in text.split(",") if part.strip()]
    dense = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return sizes if sum(sizes) == dense else [dense]
