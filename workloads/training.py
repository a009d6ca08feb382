"""Really train: every worker computes gradients of its own batches, the scheme averages them.

The learning rate and all other hyper-parameters are used as given for every scheme, and written into the worker's result.
Nothing is augmented and nothing random but the seeded order of samples and the seeded initial weights.
"""

from __future__ import annotations

import copy
import hashlib
import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, functional

from workloads.batchnorm import refresh_statistics
from workloads.clock import Clock
from workloads.datasets import Dataset, load_dataset
from workloads.datasets.batches import BatchOrder
from workloads.job import Job
from workloads.models import build_model
from workloads.pace import Stretch
from workloads.records import Stream
from workloads.session import Session, wrap

EVAL_BATCH = 50  # small ones stay in the cache: a third faster than 250 with four workers on two cores
DEFAULT_EVAL_SAMPLES = 1000
CALIBRATION_SAMPLES = 128  # of each rank, for the batch-norm statistics of an evaluation


class Images:
    """A dataset's images as normalised float batches."""

    def __init__(self, dataset: Dataset, device: str = "cpu") -> None:
        self.dataset = dataset
        self._device = device
        shape = (1, dataset.channels, 1, 1)
        self._offset = torch.tensor(dataset.mean).view(shape) * 255
        self._scale = 1 / (torch.tensor(dataset.std).view(shape) * 255)

    def train(self, indices: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        """Return training images and labels."""
        return self._batch(self.dataset.train_images[indices], self.dataset.train_labels[indices])

    def test(self, indices: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        """Return test images and labels."""
        return self._batch(self.dataset.test_images[indices], self.dataset.test_labels[indices])

    def _batch(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        scaled = (torch.from_numpy(images).float() - self._offset) * self._scale
        return scaled.to(self._device), torch.from_numpy(labels).to(self._device)


def train(job: Job, stream: Stream, dataset: Dataset | None = None) -> None:
    """Train as the job says and write the worker's result."""
    work = job.workload
    images = Images(dataset or load_dataset(work["dataset"], work.get("data_dir")), job.device)
    torch.manual_seed(job.seed)
    model = build_model(work["model"], images.dataset.channels, images.dataset.classes).to(job.device)
    optimizer = _optimizer(model, work["optimizer"])
    order = BatchOrder(len(images.dataset.train_labels), work["batch_size"], job.rank, job.world_size, job.seed)
    session = Session(job, stream, wrap(model))
    if session.attachment.parts.has_momentum and (work["optimizer"].get("momentum") or work["optimizer"]["name"] != "sgd"):
        raise ValueError(f"{session.attachment.scheme.slug} has momentum of its own: use the optimizer sgd without momentum")

    pace = Stretch(session.clock, lambda: session.attachment.encode_cpu_s, session.paced_parameters())

    def run_step(step: int) -> float:
        pace.begin(session.slowdown)
        inputs, labels = images.train(order.indices(step))
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(session.model(inputs), labels)
        pace.catch_up()
        loss.backward()  # catches up at every gradient
        if job.device == "cuda":
            torch.cuda.synchronize()  # what was only asked for is not done
        session.timer.backward_done()
        pace.begin(session.slowdown)  # the wait for the network was no computing
        optimizer.step()
        value = loss.item()
        pace.catch_up()
        return value

    def save() -> Any:
        return copy.deepcopy((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()))

    def restore(state: Any) -> None:
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        torch.set_rng_state(state[2])
        optimizer.zero_grad(set_to_none=True)

    subset = np.random.default_rng(job.seed).permutation(len(images.dataset.test_labels))

    drawn = np.random.default_rng(job.seed).permutation(len(images.dataset.train_labels))
    calibration, _ = images.train(drawn[job.rank * CALIBRATION_SAMPLES : (job.rank + 1) * CALIBRATION_SAMPLES])

    def evaluate_now(step: int, train_s: float, final: bool) -> float:
        chosen = subset if final else subset[: work.get("eval_samples", DEFAULT_EVAL_SAMPLES)]
        clock = Clock() if final else session.clock  # nothing waits for the last one
        refresh_statistics(model, calibration, clock)
        accuracy, loss, samples = evaluate(model, images, chosen, job.rank, job.world_size, clock)
        row = {"step": step, "mono_s": time.monotonic(), "train_s": train_s, "accuracy": accuracy, "loss": loss}
        stream.evaluation({**row, "samples": samples, "final": final})
        return accuracy

    session.warm_up(run_step, save, restore)
    session.measure(run_step, evaluate_now)
    final_accuracy = evaluate_now(session.steps, session.train_s, True)
    hyperparameters = {"batch_size": work["batch_size"], "model": work["model"], "dataset": work["dataset"], **work["optimizer"]}
    stream.result({**session.result(digest(model), hyperparameters), "final_accuracy": final_accuracy})


def evaluate(
    model: Module, images: Images, indices: np.ndarray[Any, Any], rank: int, world_size: int, clock: Clock
) -> tuple[float, float, int]:
    """Share the evaluation of test samples among the ranks; return accuracy, mean loss and samples, the same on all."""
    model.eval()
    tally = torch.zeros(3, dtype=torch.float64)  # correct, summed loss, samples
    mine = indices[rank::world_size]
    with torch.no_grad(), clock.work():
        for start in range(0, len(mine), EVAL_BATCH):
            inputs, labels = images.test(mine[start : start + EVAL_BATCH])
            logits = model(inputs)
            loss = functional.cross_entropy(logits, labels, reduction="sum")
            tally += torch.tensor([(logits.argmax(1) == labels).sum().item(), loss.item(), len(labels)], dtype=torch.float64)
    model.train()
    dist.all_reduce(tally)
    correct, loss_sum, samples = tally.tolist()
    return correct / samples, loss_sum / samples, int(samples)


def digest(model: Module) -> str:
    """Hash parameters and buffers: replicas that agree have equal digests."""
    state = hashlib.sha256()
    for tensor in model.state_dict().values():
        state.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def _optimizer(model: Module, given: dict[str, Any]) -> torch.optim.Optimizer:
    lr, weight_decay = given["lr"], given.get("weight_decay") or 0.0
    if given["name"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=lr, momentum=given.get("momentum") or 0.0, weight_decay=weight_decay)
    if given["name"] == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    raise ValueError(f"unknown optimizer {given['name']!r}: choose sgd or adam")
