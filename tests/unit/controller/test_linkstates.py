"""A link needs both its ports."""

from __future__ import annotations

import pytest
from control_jobs import two_spines

from controller.linkstates import LinkStates


@pytest.fixture
def links():
    return LinkStates(two_spines())


def test_the_links_of_a_path_that_are_down_are_named_in_its_order(links):
    path = ["h1", "l1", "p1", "l2", "h3"]
    assert links.down_along(path) == []
    links.set_port("p1", "l2", up=False)
    links.set_port("l1", "p1", up=False)
    links.set_port("l1", "p2", up=False)
    assert links.down_along(path) == ["fabric-l1-p1", "fabric-l2-p1"]


def test_links_are_up_until_a_port_is_down(links):
    assert links.down == frozenset()
    assert links.set_port("l1", "p1", up=True) is None


def test_either_port_takes_a_link_down_once(links):
    assert links.set_port("p1", "l1", up=False) == "fabric-l1-p1"
    assert links.set_port("l1", "p1", up=False) is None
    assert links.down == {"fabric-l1-p1"}


def test_a_link_is_up_again_when_both_ports_are(links):
    links.set_port("p1", "l1", up=False)
    links.set_port("l1", "p1", up=False)
    assert links.set_port("p1", "l1", up=True) is None
    assert links.down == {"fabric-l1-p1"}
    assert links.set_port("l1", "p1", up=True) == "fabric-l1-p1"
    assert links.down == frozenset()


def test_of_a_hosts_link_the_switch_alone_tells(links):
    assert links.set_port("l1", "h1", up=False) == "access-h1"
    assert links.set_port("l1", "h1", up=True) == "access-h1"
