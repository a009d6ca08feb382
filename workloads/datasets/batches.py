"""The order of samples: seeded, sharded by rank, and the same for every scheme."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class BatchOrder:
    """Tell which samples a rank trains on in a step; each epoch is one permutation, of which rank r takes every N-th from r on."""

    def __init__(self, samples: int, batch_size: int, rank: int, world_size: int, seed: int) -> None:
        self.samples, self.batch_size, self.rank, self.world_size, self.seed = samples, batch_size, rank, world_size, seed
        self.steps_per_epoch = samples // world_size // batch_size
        if self.steps_per_epoch == 0:
            raise ValueError(f"{samples} samples do not fill one batch of {batch_size} for each of {world_size} workers")
        self._epoch = -1
        self._shard: NDArray[np.int64] = np.empty(0, np.int64)

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the sample indices of this rank's batch in a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            order = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
            self._shard, self._epoch = order[self.rank :: self.world_size], epoch
        return self._shard[position * self.batch_size : (position + 1) * self.batch_size]
