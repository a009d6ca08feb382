"""Messages and files between ranks, through a store."""

from __future__ import annotations

import random

import pytest
import torch.distributed as dist

from testbed.cluster import mailbox as module
from testbed.cluster.mailbox import Mailbox


class CountingStore(dist.HashStore):
    """Tells which keys are left."""

    def __init__(self):
        super().__init__()
        self.keys = set()

    def set(self, key, value):
        self.keys.add(key)
        super().set(key, value)

    def delete_key(self, key):
        self.keys.discard(key)
        return super().delete_key(key)


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def mailbox(store):
    return Mailbox(store)


def test_a_message_is_read_as_it_was_written_as_often_as_one_likes(mailbox):
    assert not mailbox.has("order/0")
    mailbox.post("order/0", {"do": "run", "job": {"seed": 1, "telemetry": "", "scheme": None}})
    assert mailbox.has("order/0")
    for _ in range(2):
        assert mailbox.read("order/0") == {"do": "run", "job": {"seed": 1, "telemetry": "", "scheme": None}}


def test_a_message_that_does_not_come_is_not_waited_for_for_ever(mailbox):
    with pytest.raises(TimeoutError, match="no answer/0/1 within 0 s"):
        mailbox.read("answer/0/1", patience_s=0)


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_file_of_any_length_arrives_whole_and_leaves_nothing_in_the_store(mailbox, store, monkeypatch, size):
    monkeypatch.setattr(module, "PIECE_BYTES", 512)
    content = random.Random(1).randbytes(size)
    mailbox.send("file/0/1/steps", content)
    assert len(store.keys) == 1 + max(1, -(-size // 511))
    assert mailbox.take("file/0/1/steps") == content
    assert store.keys == set()
