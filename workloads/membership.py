"""Who takes part in an exchange: a group of the attachment's own, whose workers were all given the same."""

from __future__ import annotations

import hashlib
import json

import torch
import torch.distributed as dist

from workloads.schemes import ResolvedScheme

_FINGERPRINT_BYTES = 16


def group_of_its_own(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Return a gloo group of the same workers, with the same patience.

    Messages and sums of an attachment never meet those of the script, of DDP or of another attachment, and payloads are in main
    memory, whatever device the gradients are on.
    """
    if dist.get_backend(group) == "gloo":
        timeout = group._get_backend(torch.device("cpu")).options._timeout
    else:
        timeout = dist.constants.default_pg_timeout
    ranks = dist.get_process_group_ranks(group)
    # only its members make a group of some of all workers; its name is a hash then, which must not be used again: never destroy it
    some = len(ranks) < dist.get_world_size()
    made: dist.ProcessGroup = dist.new_group(ranks, timeout=timeout, backend="gloo", use_local_synchronization=some)
    return made


def require_the_same_everywhere(group: dist.ProcessGroup, scheme: ResolvedScheme, seed: int) -> None:
    """Refuse to start where ranks were given different schemes: they would wait for each other, or take one payload for another."""
    given = json.dumps([scheme.params, seed], sort_keys=True)
    mine = torch.frombuffer(bytearray(hashlib.sha256(given.encode()).digest()[:_FINGERPRINT_BYTES]), dtype=torch.uint8)
    all_ranks = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(all_ranks, mine, group=group)
    others = [str(rank) for rank, fingerprint in enumerate(all_ranks) if not torch.equal(fingerprint, mine)]
    if others:
        raise ValueError(
            f"ranks {', '.join(others)} attach another scheme or seed than {scheme.slug!r} with seed {seed}: attach the same on all"
        )
