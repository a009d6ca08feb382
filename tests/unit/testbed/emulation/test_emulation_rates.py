"""Rates: the frame that fills a queue is claimed by that queue and no other."""

from __future__ import annotations

import socket
import struct
from types import SimpleNamespace

import pytest

from testbed.emulation.network import Queue
from testbed.emulation.rates import _udp_frame
from topologies import LinkSpec, QueueClass, dumbbell

ADDRESSES = {"h1": "10.0.0.1", "h2": "10.0.0.2"}


def claimed_by(frame: bytes, classes: tuple[QueueClass, ...]) -> list[str]:
    """Name the classes one of whose filters matches the frame."""
    tos, source, target = frame[15], socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
    ports = struct.unpack("!HH", frame[34:38])
    return [
        one.name
        for one in classes
        if one.dscp == tos >> 2 or one.port in ports or any(ADDRESSES[host] in (source, target) for host in one.hosts)
    ]


@pytest.mark.parametrize(
    "claims",
    [
        [{"dscp": 8}, {"port": 5201}, {"hosts": ("h1",)}],
        [{"dscp": 0}, {"port": 9}, {"hosts": ("h2",)}],  # what a plain frame to the discard port has
        [{"port": 9}, {"dscp": 0, "port": 10}, {"hosts": ("h1", "h2"), "dscp": 1}],
    ],
)
def test_the_frame_of_a_class_is_claimed_by_no_other(claims):
    named = [QueueClass(f"c{i}", 1e6, 8e6, 20_000, **claim) for i, claim in enumerate(claims)]
    classes = (QueueClass("rest", 1e6, 8e6, 20_000), *named)
    direction = next(dumbbell(2, LinkSpec(8e6, classes=classes), LinkSpec(100e6)).directions())
    network = SimpleNamespace(mtu=1500, address=ADDRESSES.__getitem__)
    for number, one in enumerate(classes):
        frame = _udp_frame(network, Queue(direction, "s1-eth1", None, one, number))
        assert len(frame) == 1514
        assert claimed_by(frame, classes) == ([one.name] if number else [])
