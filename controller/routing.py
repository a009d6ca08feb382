"""Route a network: from its graph to one explicit path a pair of hosts, and from the paths to the switches' rules.

Nothing here knows OpenFlow: rules name hosts and neighbouring nodes, and `app` turns them into matches and ports.

No set of rules that belongs together can loop. A path visits no node twice, and its rules match the node that a frame came from; the rules
of select groups lead strictly nearer to the target. Hosts never carry transit, and the cost of a path is its number of hops.

While one set replaces another, every rule tells its `distance`: rules take force from the targets backwards, so a frame keeps to the old
ones until it meets a new one, and from there on meets only new ones: a frame on a path is not lost and does not loop, nor does one among
select groups loop. But the latter, sent on by an old rule, may come to a switch whose new rule leads back: OpenFlow never sends a frame out
by the port it came in by, so it is dropped. And where a pair loses its pin among select groups, TCP frames that go by groups may meet what
is left of the pin's rules and be led astray, or around, until those are deleted. Both are over with the update.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from typing import Any, Literal

from topologies import LinkSpec, Network

Path = tuple[str, ...]  # node names: host, switches, host
Paths = dict[tuple[str, str], Path]  # by ordered pair of hosts; both directions of a pair use the same links

PATH_PRIORITY = 100  # explicit paths
GROUP_PRIORITY = 200  # TCP by select groups goes before the explicit paths,
PINNED_PRIORITY = 300  # but a pinned pair keeps to its path
ARP_PRIORITY = 400


class RoutingError(ValueError):
    """A path that this network cannot have."""


@dataclass(frozen=True)
class RoutingPolicy:
    """How paths are chosen."""

    kind: Literal["shortest", "ecmp", "groups"] = "ecmp"  # groups: as ecmp, and TCP spreads by connection over select groups
    seed: int = 1  # chooses among equal paths
    pinned: tuple[Path, ...] = ()  # full paths from host to host, for both directions; a later one replaces an earlier one of its pair

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RoutingPolicy:
        """Read back what `dataclasses.asdict` made of a policy."""
        return cls(raw["kind"], raw["seed"], tuple(tuple(path) for path in raw["pinned"]))


@dataclass(frozen=True)
class Forward:
    """Send the frames from `source` (None: any) to `target` that came from a neighbour (None: any) to one of the next hops."""

    switch: str
    source: str | None
    target: str
    came_from: str | None
    next_hops: tuple[str, ...]  # several: a select group
    tcp_only: bool
    priority: int
    distance: int  # how many switches follow this one


@dataclass(frozen=True)
class AnswerArp:
    """Let the switch itself answer the question who has the host's address."""

    switch: str
    host: str
    priority: int


Rule = Forward | AnswerArp


def check_pin(network: Network, path: Path) -> None:
    """Raise RoutingError unless the path leads from one host to another over links and switches of the network, visiting none twice."""
    hosts, nodes = set(network.all_hosts), {*network.all_hosts, *network.switches}
    if len(path) < 2:
        raise RoutingError(f"a path names two hosts and the switches between them; this one names {len(path)}")
    for node in path:
        if node not in nodes:
            raise RoutingError(f"the path names {node}, which this network does not have")
    for node in (path[0], path[-1]):
        if node not in hosts:
            raise RoutingError(f"a path leads from one host to another, and {node} is a switch")
    for node, times in Counter(path).items():
        if times > 1:
            raise RoutingError(f"the path visits {node} {times} times; visit each node once")
    for node in path[1:-1]:
        if node in hosts:
            raise RoutingError(f"the path leads through {node}, but hosts do not forward; name only switches between the ends")
    for a, b in pairwise(path):
        if not network.graph.has_edge(a, b):
            raise RoutingError(f"the path goes from {a} to {b}, but no link joins them")


def compute_paths(network: Network, policy: RoutingPolicy, down: frozenset[str] = frozenset()) -> Paths:
    """Choose a path for every pair of hosts that the links not in `down` (names) can join.

    1. Choose for every pair as if all links were up, then let pins replace the paths of their pairs and of no others.
    2. Keep whatever does not cross a link that is down; a pin that does gives way to its pair's computed path.
    3. Choose anew only for the pairs that are left, beside those that were kept.

    The result depends on the arguments alone, so a pair gets its own path back when the link does.
    """
    load = _Load(network)
    pairs = _in_order(network, policy.seed)
    chosen = _choose(_Fabric(network, frozenset()), policy, pairs, load)
    chosen |= {pair: pin for pair, pin in _pins(network, policy).items() if not load.links_of(pin) & down}
    broken = [pair for pair in pairs if pair in chosen and load.links_of(chosen[pair]) & down]
    if broken:
        chosen = {pair: path for pair, path in chosen.items() if not load.links_of(path) & down}
        kept = _Load(network)
        for path in chosen.values():
            kept.add(path)
        chosen |= _choose(_Fabric(network, down), policy, broken, kept)
    both = chosen | {(b, a): path[::-1] for (a, b), path in chosen.items()}
    return {pair: both[pair] for pair in permutations(network.all_hosts, 2) if pair in both}


def rules(network: Network, paths: Paths, policy: RoutingPolicy, down: frozenset[str] = frozenset()) -> list[Rule]:
    """Return what every switch must be told so that frames follow the paths, in an order that depends on the arguments alone."""
    edges = [switch for switch in network.switches if not network.graph[switch].keys().isdisjoint(network.all_hosts)]
    made: list[Rule] = [AnswerArp(switch, host, ARP_PRIORITY) for switch in edges for host in network.all_hosts]
    pinned = {path for pin in _pins(network, policy).values() for path in (pin, pin[::-1])}
    for pair in permutations(network.all_hosts, 2):
        path = paths.get(pair, ())
        priority = PINNED_PRIORITY if path in pinned else PATH_PRIORITY
        for i, (before, switch, after) in enumerate(zip(path, path[1:], path[2:], strict=False)):
            made.append(Forward(switch, *pair, before, (after,), tcp_only=False, priority=priority, distance=len(path) - 3 - i))
    if policy.kind == "groups":
        fabric = _Fabric(network, down)
        for target in network.all_hosts:
            for switch, (hops, nearer) in fabric.ways_to(target).items():
                made.append(Forward(switch, None, target, None, nearer, tcp_only=True, priority=GROUP_PRIORITY, distance=hops))
    return made


def longest_crossing_s(network: Network, paths: Iterable[Path]) -> float:
    """Return how long a frame may be under way on the slowest of the paths, by the configured delays and full queues."""
    seconds = {(direction.source, direction.target): _crossing_s(direction.spec) for direction in network.directions()}
    return max((sum(seconds[ends] for ends in pairwise(path)) for path in paths), default=0.0)


def _crossing_s(spec: LinkSpec) -> float:
    waiting_s = spec.queue_bytes * 8 / spec.rate_bps if spec.queue_bytes and spec.rate_bps else 0.0
    return spec.delay_s + spec.jitter_s + waiting_s


class _Fabric:
    """The links that are up, and the shortest ways over them."""

    def __init__(self, network: Network, down: frozenset[str]) -> None:
        switches = set(network.switches)
        neighbours: dict[str, set[str]] = {node: set() for node in (*network.all_hosts, *network.switches)}
        for link in network.links:
            if link.name not in down:
                neighbours[link.a].add(link.b)
                neighbours[link.b].add(link.a)
        self._switches_beside = {node: tuple(sorted(beside & switches)) for node, beside in neighbours.items()}
        self._between: dict[tuple[Path, Path], list[Path]] = {}  # by the switches at either end: hosts of one switch share them

    def switches_of(self, host: str) -> Path:
        """Return the switches that a host is joined to, sorted."""
        return self._switches_beside[host]

    def shortest(self, source: str, target: str) -> list[Path]:
        """Return every shortest path between two hosts, in lexicographic order."""
        ends = self.switches_of(source), self.switches_of(target)
        if ends not in self._between:
            self._between[ends] = self._shortest_between(*ends)
        return [(source, *switches, target) for switches in self._between[ends]]

    def ways_to(self, target: str) -> dict[str, tuple[int, Path]]:
        """Return, for each switch that can reach a host, how many switches follow, and every neighbour that is strictly nearer to it."""
        last = self.switches_of(target)
        hops = self._hops_to(last)
        return {switch: (hops[switch], (target,) if switch in last else self._nearer(switch, hops)) for switch in sorted(hops)}

    def _shortest_between(self, starts: Path, goals: Path) -> list[Path]:
        hops = self._hops_to(goals)
        length = min((hops[start] for start in starts if start in hops), default=0)
        found: list[Path] = [(start,) for start in starts if hops.get(start) == length]
        for _ in range(length):
            found = [(*path, switch) for path in found for switch in self._nearer(path[-1], hops)]
        return found

    def _nearer(self, switch: str, hops: dict[str, int]) -> Path:
        return tuple(other for other in self._switches_beside[switch] if hops[other] < hops[switch])

    def _hops_to(self, goals: Path) -> dict[str, int]:
        hops = dict.fromkeys(goals, 0)
        waiting = deque(goals)
        while waiting:
            switch = waiting.popleft()
            for other in self._switches_beside[switch]:
                if other not in hops:
                    hops[other] = hops[switch] + 1
                    waiting.append(other)
        return hops


class _Load:
    """How many pairs cross each switch and each link."""

    def __init__(self, network: Network) -> None:
        self._names = {ends: link.name for link in network.links for ends in ((link.a, link.b), (link.b, link.a))}
        self._crossings: Counter[str] = Counter()  # by name of switch
        self._link_crossings: Counter[str] = Counter()

    def links_of(self, path: Path) -> set[str]:
        """Return the names of the links along a path."""
        return {self._names[ends] for ends in pairwise(path)}

    def add(self, path: Path) -> None:
        """Count one more pair along a path."""
        self._crossings.update(path[1:-1])
        self._link_crossings.update(self.links_of(path))

    def along(self, path: Path) -> tuple[list[int], list[int]]:
        """Return the loads of a path's switches and of its links, the heaviest first.

        Where equally long paths are compared by these lists, the nodes and links that all of them share make no difference.
        """
        switches = sorted((self._crossings[switch] for switch in path[1:-1]), reverse=True)
        return switches, sorted((self._link_crossings[link] for link in self.links_of(path)), reverse=True)


def _choose(fabric: _Fabric, policy: RoutingPolicy, pairs: Iterable[tuple[str, str]], load: _Load) -> Paths:
    """Give each pair in turn one of its shortest paths, adding it to the load; a pair that cannot be joined gets none."""
    chosen: Paths = {}
    for pair in pairs:
        candidates = fabric.shortest(*pair)
        if not candidates:
            continue
        if policy.kind == "shortest":
            chosen[pair] = candidates[0]
        else:
            chosen[pair] = min(candidates, key=lambda path: (*load.along(path), _draw(policy.seed, path)))
        load.add(chosen[pair])
    return chosen


def _in_order(network: Network, seed: int) -> list[tuple[str, str]]:
    """Return every unordered pair once: neighbours in the ring of workers first, so that they are spread evenly by themselves.

    Pairs with a host for traffic come last: with them or without, the workers' paths are the same.
    """
    hosts = network.hosts
    ring = [*pairwise(hosts), (hosts[0], hosts[-1])] if len(hosts) > 2 else [*pairwise(hosts)]
    others = sorted(set(combinations(hosts, 2)) - set(ring), key=lambda pair: _draw(seed, pair))
    return [*ring, *others, *(pair for pair in combinations(network.all_hosts, 2) if pair[1] in network.traffic_hosts)]


def _pins(network: Network, policy: RoutingPolicy) -> Paths:
    """Return the pinned paths by the pair in rank order, checked."""
    rank = {host: i for i, host in enumerate(network.all_hosts)}
    pins: Paths = {}
    for pin in policy.pinned:
        check_pin(network, pin)
        path = pin if rank[pin[0]] < rank[pin[-1]] else pin[::-1]
        pins[path[0], path[-1]] = path
    return pins


def _draw(seed: int, names: tuple[str, ...]) -> bytes:
    """Return a seeded hash that is the same in every process and on every machine."""
    return hashlib.blake2b(repr((seed, names)).encode(), digest_size=8).digest()
