"""By which network interface this machine reaches another one. What cannot be told is an OSError that names the remedy."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 16
_ANY_PORT = 9  # connecting a datagram socket sends nothing


def is_loopback(address: str) -> bool:
    """Tell whether only this machine itself reaches the address."""
    return ipaddress.ip_address(address).is_loopback


def address_towards(host: str) -> str:
    """Return the address that this machine's packets to a host come from."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            address: str = probe.getsockname()[0]
            return address
    except OSError as error:
        raise OSError(f"it knows no way to {host} ({error}): make that name known to it, by DNS or /etc/hosts") from error


def interface_of(address: str) -> str:
    """Return the interface that has an address; any loopback address is the loopback interface's."""
    for name, own in _addresses():
        if own == address or (is_loopback(own) and is_loopback(address)):
            return name
    raise OSError(f"none of its interfaces ({_names()}) has the address {address}: name one with --interface")


def address_of(interface: str) -> str:
    """Return the first address of an interface."""
    for name, address in _addresses():
        if name == interface:
            return address
    raise OSError(f"its interface {interface} is not there or has no address, it has {_names()}: name one of them with --interface")


def mtu_of(interface: str) -> int:
    """Return an interface's MTU."""
    return int(Path(f"/sys/class/net/{interface}/mtu").read_text())


def _addresses() -> list[tuple[str, str]]:
    """List interfaces with their addresses, IPv4 first."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack(f"{_NAME_BYTES}s240x", name.encode()))
            except OSError:  # it has none
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    table = Path("/proc/net/if_inet6")
    for line in table.read_text().splitlines() if table.exists() else []:
        number, *_, name = line.split()
        found.append((name, str(ipaddress.IPv6Address(int(number, 16)))))
    return found


def _names() -> str:
    return ", ".join(dict.fromkeys(name for name, _ in _addresses()))
