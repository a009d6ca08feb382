"""Which interface faces another machine; the loopback is the one every machine has."""

from __future__ import annotations

import socket

import pytest

from testbed.cluster.interfaces import address_of, address_towards, interface_of, is_loopback, mtu_of


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1"])
def test_this_machine_is_reached_by_its_loopback_under_any_of_its_names(address):
    assert is_loopback(address)
    assert interface_of(address_towards(address)) == "lo"


def test_an_interface_has_an_address_and_an_mtu():
    assert is_loopback(address_of("lo"))
    assert mtu_of("lo") >= 1500


def test_what_cannot_be_told_names_the_remedy():
    with pytest.raises(OSError, match=r"interface nosuch0 is not there or has no address, it has lo.*: name one of them with --interface"):
        address_of("nosuch0")
    with pytest.raises(OSError, match=r"none of its interfaces \(lo.*\) has the address 192\.0\.2\.1: name one with --interface"):
        interface_of("192.0.2.1")


def test_a_name_that_cannot_be_found_names_the_remedy(monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match=r"no way to node7 \(.*not known\): make that name known to it, by DNS or /etc/hosts"):
        address_towards("node7")
