"""Build a Mininet Topo from any Network."""

from __future__ import annotations

from mininet.topo import Topo

from topologies.model import Network


class NetworkTopo(Topo):
    """The network's nodes and links; every link carries its description as the parameter `description`."""

    def build(self, network: Network) -> None:
        """Add nodes and links; hosts get 10.0.x.y by rank, so that an address tells the host."""
        for i, host in enumerate(network.all_hosts):
            number = i + 1
            self.addHost(host, ip=f"10.0.{number >> 8}.{number & 255}/16", mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")
        for i, switch in enumerate(network.switches):
            self.addSwitch(switch, dpid=f"{i + 1:016x}")
        for link in network.links:
            self.addLink(link.a, link.b, description=link)
