"""Train on two processes with compressed gradients: PyTorch's DDP tutorial and one line more.

    torchrun --nproc-per-node 2 docs/examples/train_ddp.py netsense

Any name that `testbed schemes` lists will do. The line is `attach(model, scheme)`; what mentions `stats` only tells what was sent.
On a machine whose own name does not resolve, torchrun waits for ever: give it --local-addr 127.0.0.1.
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from workloads.datasets import load_dataset
from workloads.hooks import attach, stats

EPOCHS = 2
TRAIN_IMAGES, TEST_IMAGES = 8192, 2048  # of 60,000 and 10,000: a few seconds are enough to see it work


def build() -> nn.Module:
    """Build a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def load() -> tuple[TensorDataset, TensorDataset]:
    """Read Fashion-MNIST, as the Debian package dataset-fashion-mnist installs it."""
    data = load_dataset("fashion-mnist")

    def normalised(images: Tensor, labels: Tensor) -> TensorDataset:
        return TensorDataset((images / 255 - data.mean[0]) / data.std[0], labels)

    train = normalised(torch.tensor(data.train_images[:TRAIN_IMAGES]), torch.tensor(data.train_labels[:TRAIN_IMAGES]))
    return train, normalised(torch.tensor(data.test_images[:TEST_IMAGES]), torch.tensor(data.test_labels[:TEST_IMAGES]))


def digest(model: nn.Module) -> str:
    """Hash the parameters."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def main(scheme: str) -> None:
    """Train, evaluate, and tell what was sent."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    train, test = load()
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(train)
    loader = DataLoader(train, batch_size=64, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(build())
    attach(model, scheme)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            images, labels = test.tensors
            accuracy = (model.module(images).argmax(1) == labels).float().mean().item()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")

    digests = [""] * world_size
    dist.all_gather_object(digests, digest(model))
    if rank == 0:
        total = stats(model)
        print(f"{total.scheme}: sent {total.bytes_sent:,} bytes for {total.dense_bytes:,} bytes of gradients in {total.steps} steps")
        print("replicas identical" if len(set(digests)) == 1 else "replicas differ")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "netsense")
