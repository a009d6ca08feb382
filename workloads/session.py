"""What training and replay share: the warm-up and the measured loop.

The measured loop (1) looks whether to evaluate or stop before the step, (2) runs and times it, (3) records it, and
(4) on rank 0 decides by the training clock what comes next. The clock stands still during evaluations.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from workloads.clock import Clock
from workloads.group import notices_of
from workloads.herald import Herald
from workloads.hooks import attach
from workloads.job import Job
from workloads.pace import Slowdown, Slowdowns
from workloads.policies.policy import SENSING
from workloads.records import Stream, WireCounters
from workloads.stop import EVALUATE, STOP, Announcer, Listener
from workloads.timing import StepTimer
from workloads.traffic import StepTraffic

QUIET_STEPS, LEAST_QUIET_STEPS = 5, 3
DEFAULT_WARMUP_STEPS = 3
LEAST_WARMUP_STEPS = 1  # after the first step: DDP builds its buckets anew in the second, and every connection carries them
LONG_S = 1.0  # where every step is long, few of them do

RunStep = Callable[[int], float | None]  # forward, backward, optimiser of step i; returns the loss
Evaluate = Callable[[int, float, bool], float]  # (step, train_s, final) -> accuracy


def how_often(most: int, done: int, seconds: float) -> int:
    """Return how many steps to do in all, when `done` of them, the least there may be, took so long."""
    return min(most, max(done, int(LONG_S * done / max(seconds, 1e-9))))


def wrap(model: Module) -> DistributedDataParallel:
    """Wrap a model that every rank built from the same seed.

    init_sync=False: the replicas are equal already, and a broadcast of the model would cross the emulated network.
    forward_sync_buffers=False: DDP would broadcast batch-norm statistics in every step, a cost no scheme compresses; we
    measure them before evaluations, outside the training clock, so replicas still end bit-identical (batchnorm.py).
    """
    # 1x1 convolutions have gradients of equivalent but differently written strides; DDP copies either way
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    return DistributedDataParallel(model, init_sync=False, forward_sync_buffers=False, gradient_as_bucket_view=True)


class Session:
    """One worker's measured run of one model under one scheme."""

    def __init__(self, job: Job, stream: Stream, model: DistributedDataParallel) -> None:
        self.job, self.stream, self.model = job, stream, model
        self.clock = Clock(job.dilation)
        self.slowdown = 1.0  # of the present step's compute; the warm-up is never slowed down
        self._slowdowns = Slowdowns([Slowdown(**given) for given in job.slowdowns], job.seed, job.rank)
        self.attachment = attach(model, job.scheme, job.seed, telemetry=job.telemetry or None, clock=self.clock)
        self._source: str | None = None  # where the policy had its last decision from
        self.timer = StepTimer((p for p in model.parameters() if p.requires_grad), self.clock)
        self.wire = WireCounters(job.interface)
        self.train_s = 0.0
        self.steps = 0
        self.rounds, self.messages = 0.0, 0  # of all measured steps: sequential round trips, messages sent
        self.quiet_compute_s = 0.0
        self.cpu_s = self.wall_s = 0.0
        notices = notices_of(job)
        self._announcer = Announcer(notices) if job.rank == 0 else None
        self._listener = Listener(notices)
        self._herald = Herald(job.stream_dir, job.told_steps) if job.rank == 0 else None

    def paced_parameters(self) -> Iterable[Tensor]:
        """Return the parameters whose gradients must be held back when computing is slowed down; none where it never is."""
        is_paced = self.job.slowdowns or self.job.dilation != 1
        return [p for p in self.model.parameters() if p.requires_grad] if is_paced else []

    def warm_up(self, run_step: RunStep, save: Callable[[], Any], restore: Callable[[Any], None]) -> None:
        """Measure compute without traffic, let DDP build its buckets and connections, then undo all of it."""
        initial = save()
        quiet = []
        run_step(0)  # the first step allocates and connects
        self.stream.event("first_step", "first step of the warm-up done")
        dist.barrier()

        def quiet_step(i: int) -> None:
            with self.model.no_sync():
                self.timer.begin()
                run_step(i)
                quiet.append(self.timer.end().compute_s)

        self._repeat(quiet_step, QUIET_STEPS, LEAST_QUIET_STEPS)
        self.quiet_compute_s = statistics.median(quiet)
        dist.barrier()
        warmup_steps = self._repeat(run_step, self.job.workload.get("warmup_steps", DEFAULT_WARMUP_STEPS), LEAST_WARMUP_STEPS)
        restore(initial)
        self.attachment.reset()
        self.stream.event("warmup_done", "warmed up and restored", steps=warmup_steps, quiet_compute_s=self.quiet_compute_s)

    def _repeat(self, step: Callable[[int], Any], most: int, least: int) -> int:
        """Do a step as often as there is time for; return how often. The ranks ask each other only once: on a slow path that takes long.

        The slowest rank's clock decides, so that all do the same.
        """
        first, began = min(most, least), self.clock.now()
        for i in range(first):
            step(i)
        slowest = torch.tensor(self.clock.now() - began, dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times = how_often(most, first, slowest.item())
        for i in range(first, times):
            step(i)
        return times

    def measure(self, run_step: RunStep, evaluate: Evaluate | None = None) -> None:
        """Run measured steps until the budget is spent."""
        budget = self.job.workload["budget"]
        every_s = self.job.workload.get("eval_every_s") if evaluate else None
        at_steps = frozenset(self.job.workload.get("eval_steps", ()))  # which every rank knows without being told
        next_eval_s = every_s or float("inf")
        accuracy = evaluate(0, 0.0, False) if evaluate else None
        dist.barrier()
        self.stream.event("measured_start", "first measured step")
        wall, cpu = time.perf_counter(), time.process_time()
        while not self._is_spent(budget, accuracy):
            action = self._listener.action_before(self.steps)
            if action == STOP:
                break
            if evaluate and (action == EVALUATE or self.steps in at_steps):
                accuracy = evaluate(self.steps, self.train_s, False)
                if self._is_spent(budget, accuracy):
                    break
            if self._herald:
                self._herald.begins(self.steps)
            step_s = self._one_step(run_step)
            if self._announcer:
                # an announcement takes effect some steps from now, so look as far ahead; announcing the end twice does no harm
                due = self.train_s + (self._announcer.ahead - 1) * step_s
                if budget.get("seconds") is not None and due >= budget["seconds"]:
                    self._announcer.announce(self.steps - 1, STOP)
                elif due >= next_eval_s:
                    self._announcer.announce(self.steps - 1, EVALUATE)
                    next_eval_s += every_s * max(1, -(-(due - next_eval_s) // every_s)) if every_s else 0.0
        self.wall_s, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
        self.stream.event("measured_end", "last measured step done", steps=self.steps, train_s=self.train_s)

    def _is_spent(self, budget: dict[str, float | None], accuracy: float | None) -> bool:
        """Tell what every rank knows by itself: the number of steps and the evaluated accuracy are the same on all."""
        steps, target = budget.get("steps"), budget.get("accuracy")
        return (steps is not None and self.steps >= steps) or (target is not None and accuracy is not None and accuracy >= target)

    def _one_step(self, run_step: RunStep) -> float:
        sent, received = self.wire.read()
        mono_s = time.monotonic()
        self.slowdown = self._slowdowns.of(self.steps)
        self.timer.begin()
        loss = run_step(self.steps)
        traffic = self.attachment.take()
        self.rounds += traffic.cost.rounds
        self.messages += traffic.cost.messages
        times = self.timer.end(traffic.encodes, traffic.decodes)
        sent_after, received_after = self.wire.read()
        if loss is not None and not np.isfinite(loss):
            self.stream.event("non_finite", f"the loss of step {self.steps} is {loss}", step=self.steps)
        self.train_s += times.step_s
        self._report_source(traffic)
        decision, connections = traffic.decision, traffic.connections
        self.stream.step(
            {
                "step": self.steps,
                "rank": self.job.rank,
                "mono_s": mono_s,
                "train_s": self.train_s,
                "step_s": times.step_s,
                "compute_s": times.compute_s,
                "encode_s": times.encode_s,
                "exchange_s": times.exchange_s,
                "decode_s": times.decode_s,
                "slowdown": self.slowdown,
                "samples": self.job.workload["batch_size"],
                "overlap_s": self.timer.overlap_s(traffic.exchanges) if self.attachment.has_hook else None,
                "bytes_sent": traffic.cost.bytes_sent,
                "bytes_received": traffic.cost.bytes_received,
                "wire_bytes_sent": None if sent is None or sent_after is None else sent_after - sent,
                "wire_bytes_received": None if received is None or received_after is None else received_after - received,
                "dense_bytes": traffic.dense_bytes,
                "ratio": traffic.ratio,
                "available_bps": traffic.sample.available_bps,
                "btlbw_bps": decision.btlbw_bps,
                "rtprop_s": decision.rtprop_s,
                "bdp_bytes": decision.bdp_bytes,
                "congested": decision.congested,
                "tcp_rtt_s": connections.rtt_s if connections else None,
                "tcp_delivery_bps": connections.delivery_bps if connections else None,
                "tcp_retransmits": connections.retransmits if connections else None,
                "loss": loss,
            }
        )
        self.steps += 1
        return times.step_s

    def _report_source(self, traffic: StepTraffic) -> None:
        """Tell, once for all ranks, when an assisted policy begins to follow telemetry or to sense by itself."""
        source, age_s = traffic.decision.source, traffic.sample.telemetry_age_s
        if source is None or source == self._source:
            return
        name = self.attachment.scheme.name
        if source == SENSING:
            cause = f"telemetry is {age_s:.1f} s old" if math.isfinite(age_s) else "there is no telemetry"
            text = f"{cause}: {name} senses by itself"
        else:
            text = f"telemetry is {'there' if self._source is None else 'back'}: {name} sets the ratio by it"
        self._source = source
        if self.job.rank == 0:
            self.stream.event("policy_source", text, source=source, step=self.steps)

    def result(self, digest: str, hyperparameters: dict[str, Any]) -> dict[str, Any]:
        """Return what the runner wants to know of this worker."""
        return {
            "rank": self.job.rank,
            "steps": self.steps,
            "rounds": self.rounds / max(1, self.steps),
            "messages": self.messages,
            "pattern": self.attachment.parts.exchange.pattern,
            "train_s": self.train_s,
            "quiet_compute_s": self.quiet_compute_s,
            "parameter_digest": digest,
            "hyperparameters": hyperparameters,
            "scheme": self.job.scheme,
            "seed": self.job.seed,
            "cpu_s": self.cpu_s,
            "wall_s": self.wall_s,
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        }
