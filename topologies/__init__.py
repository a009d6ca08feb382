"""What a network is: plain graphs of hosts, switches and links, and the loaders that build them.

Nothing here touches the machine; `mininet_topo` turns any graph into a Mininet Topo.
"""

from topologies.dumbbell import dumbbell
from topologies.leafspine import leafspine
from topologies.model import Direction, Link, LinkSpec, Network, QueueClass
from topologies.star import star

__all__ = ["Direction", "Link", "LinkSpec", "Network", "QueueClass", "dumbbell", "leafspine", "star"]
