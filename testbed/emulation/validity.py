"""Is a finished run to be believed? Pure arithmetic on what was recorded; every failed check says why in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from testbed.emulation import beside, wire
from testbed.emulation.delayline import LATENESS_BUCKET_S, LATENESS_BUCKETS
from testbed.emulation.fidelity import FAITHFUL, ROUGHLY, Fidelity, fidelity, rough, worst_of
from testbed.emulation.sampling import COARSE_INTERVAL_S, intervals_s
from topologies import LinkSpec, Network

LEAST_SAMPLED = 0.9
MOST_LATE_S = 0.05  # of a change of a link
MOST_UNSEEN_S = 2.0  # at either end of the measured part; snapshots are taken twice a second
MOST_WAITING = 0.05  # share of the time the emulator's processes may wait for a CPU
MOST_LATENESS_S = 1e-3
MOST_LATENESS = 0.05  # of the configured delay
BATCH_FRAMES = 32  # Open vSwitch's


@dataclass(frozen=True)
class Check:
    """One reason to believe a run, or not."""

    name: str
    value: float | None
    limit: float | None
    ok: bool
    text: str  # what is wrong, in words, when it is not ok

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Window:
    """The counters' growth over the measured part of a run."""

    first: dict[str, Any]
    last: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Return the time between the two snapshots."""
        return float(self.last["mono_s"] - self.first["mono_s"])

    def growth(self, *path: str) -> float:
        """Return how much a counter grew."""
        first, last = self.first, self.last
        for key in path:
            first, last = first[key], last[key]
        return float(last - first)  # type: ignore[operator]


def window(snapshots: list[dict[str, Any]], start_s: float, end_s: float) -> Window | None:
    """Pick the widest pair of snapshots within the measured part; None if it was too short to hold two."""
    inside = [s for s in snapshots if start_s <= s["mono_s"] <= end_s]
    return Window(inside[0], inside[-1]) if len(inside) >= 2 else None


def queue_fidelity(links: pd.DataFrame, network: Network) -> tuple[Fidelity, dict[str, Fidelity]]:
    """Judge the bottlenecks from their samples (columns as in docs/results.md, `mono_s` or `t_s` as time)."""
    time = "t_s" if "t_s" in links.columns else "mono_s"
    columns = [time, "sent_bytes", "backlog_bytes", "rate_bps", "sent_packets"]
    found = {}
    for direction in network.directions():
        if direction.bottleneck and direction.spec.rate_bps is not None:
            chosen = links[(links["link"] == direction.link) & (links["source"] == direction.source)]
            tables = _together(chosen, direction.spec, time) if direction.spec.classes else [chosen]
            judged = [fidelity(*(table[column].to_numpy(float) for column in columns)) for table in tables if len(table) > 1]
            if judged:
                found[direction.name] = worst_of(judged)
    return worst_of(list(found.values())), found


def _together(links: pd.DataFrame, spec: LinkSpec, time: str) -> list[pd.DataFrame]:
    """Make queues to judge of a direction's classes.

    One of them all: while a class that may fill the link has a backlog, the link must be full. One of each class that may not:
    it must have its most while the others leave it that much, so elsewhere its backlog is no reason to expect anything.
    """
    fillers = [one.name for one in spec.classes if one.max_bps == spec.rate_bps]
    table = (
        links.pivot_table(index=time, columns="queue", values=["sent_bytes", "backlog_bytes", "rate_bps", "sent_packets"]).ffill().dropna()
    )
    if table.empty:
        return []
    whole = pd.DataFrame(
        {
            time: table.index,
            "sent_bytes": table["sent_bytes"].to_numpy().sum(axis=1),
            "backlog_bytes": table["backlog_bytes"][fillers].to_numpy().sum(axis=1),
            "rate_bps": table["rate_bps"].to_numpy().max(axis=1),
            "sent_packets": table["sent_packets"].to_numpy().sum(axis=1),
        }
    )
    found = [whole]
    for one in spec.classes:
        if one.name in fillers or one.name not in table["sent_bytes"]:
            continue
        own = table.loc[table.index.isin(links.loc[links["queue"] == one.name, time])]  # its own moments, the others' last readings
        most_bps = own["rate_bps"][one.name].to_numpy()
        sent = own["sent_bytes"][one.name].to_numpy()
        others = own["sent_bytes"].to_numpy().sum(axis=1) - sent
        left_bits = most_bps * ((spec.rate_bps or 0.0) / one.max_bps - 1) * np.diff(own.index, append=np.inf)
        has_its_most = np.diff(others, append=np.inf) * 8 <= left_bits
        backlog = np.where(has_its_most, own["backlog_bytes"][one.name].to_numpy(), 0.0)
        packets = own["sent_packets"][one.name].to_numpy()
        judged = {"sent_bytes": sent, "backlog_bytes": backlog, "rate_bps": most_bps, "sent_packets": packets}
        found.append(pd.DataFrame({time: own.index, **judged}))
    return found


@dataclass(frozen=True)
class Evidence:
    """Everything a run recorded that speaks for or against it."""

    network: Network  # each direction at its highest rate and its shortest delay of the run
    mtu: int
    steps: pd.DataFrame
    links: pd.DataFrame  # of the measured part
    all_links: pd.DataFrame  # warm-up and final evaluation too
    workers: list[dict[str, Any]]
    fidelity: Fidelity
    start_s: float  # of the measured part
    end_s: float
    measured: Window | None
    whole: Window | None  # from before the workers began until after they ended: the queues are empty at both ends
    background: pd.DataFrame = field(default_factory=pd.DataFrame)  # what competed with the workers
    events: pd.DataFrame = field(default_factory=pd.DataFrame)
    dilation: float = 1.0
    changes_due: int = 0  # of links, in the measured part

    @property
    def interrupted(self) -> bool:
        """Tell whether a link was down for a while: what was sent into it then is in no counter."""
        return any(data.get("state") == "down" for _, data in self.changes())

    def changes(self) -> list[tuple[float, dict[str, Any]]]:
        """Return when links were changed in the measured part, and how."""
        told = self.events[self.events["kind"] == "link_changed"] if "kind" in self.events else self.events
        return [(at_s, data) for at_s, data in zip(told.get("mono_s", ()), told.get("data", ()), strict=True) if at_s <= self.end_s]

    @property
    def seconds(self) -> float:
        """Return how long the measured part took."""
        return self.end_s - self.start_s


def checks(evidence: Evidence) -> list[Check]:
    """Return every check of DESIGN's rule, in order."""
    value, measured = evidence.fidelity.value, evidence.measured
    found = [
        Check(
            "fidelity",
            value,
            FAITHFUL[0],
            value is None or FAITHFUL[0] <= value <= FAITHFUL[1],
            f"the bottleneck delivered {value or 0:.3f} of its rate while backlogged",
        ),
        _sampling(evidence),
        replicas(evidence.workers),
        _wire(evidence),
    ]
    if evidence.changes_due:
        found += [_punctuality(evidence), *_roughly(evidence)]
    if (flows := beside.punctuality(evidence.events)) is not None:
        found.append(Check("background", flows.late_s, beside.MOST_LATE_S, flows.ok, flows.text))
    if measured is None or evidence.whole is None:
        return [*found, Check("window", 0.0, None, False, "the measured part was too short for two snapshots of the counters")]
    found.append(_snapshots(evidence, measured))
    found += [_waiting(measured, "vswitchd"), _waiting(measured, "delayline")]
    found += [_zero("socket drops", measured.growth("socket_drops"), "vswitchd's sockets dropped {:.0f} frames unseen by the queues")]
    found += [_zero("softnet drops", measured.growth("softnet_drops"), "the kernel's receive backlog dropped {:.0f} frames")]
    lost = -beside.datagrams_lost(evidence.background, measured.first["mono_s"], measured.last["mono_s"])
    if measured.last["delay"] is not None:
        errors = 0.0 if evidence.interrupted else _send_errors(measured)  # what goes to a link that is down cannot be sent
        dropped = errors + measured.growth("delay", "socket_drops")
        found.append(_zero("delay line drops", dropped, "the delay line dropped {:.0f} frames it should have carried"))
        found += _lateness(measured, evidence.network, evidence.dilation)
        lost += sum(measured.growth("delay", "directions", name, "lost") for name in measured.last["delay"]["directions"])
    hosts = evidence.network.all_hosts
    found.append(_unless(evidence.interrupted, _switch_losses(evidence.whole, _dropped(evidence.all_links, hosts)[1])))
    on_uplinks, in_switches = _dropped(evidence.links, hosts)
    lost += on_uplinks + max(in_switches, measured.growth("switch_lost"))
    found.append(_unless(evidence.interrupted, _retransmissions(measured, max(0.0, lost))))
    return found


def _punctuality(evidence: Evidence) -> Check:
    """Demand that every change of a link that was due happened, and in time."""
    late_s = [float(data["late_s"]) * evidence.dilation for _, data in evidence.changes() if "late_s" in data]
    worst_s, missing = max(late_s, default=0.0), max(0, evidence.changes_due - len(late_s))
    text = f"{missing} changes of links did not happen" if missing else f"a link was changed {worst_s * 1e3:.0f} ms late"
    return Check("changes of links", worst_s, MOST_LATE_S, not missing and worst_s <= MOST_LATE_S, text)


def _roughly(evidence: Evidence) -> Iterator[Check]:
    """Judge crudely the queues that change too often for their fidelity to be told: nobody is to be believed unseen."""
    changing = {data["link"] for _, data in evidence.changes() if "rate_bps" in data}
    for (link, source), samples in evidence.links.groupby(["link", "source"]):
        if link in changing and evidence.fidelity.value is None:
            value = rough(*(samples[column].to_numpy(float) for column in ("mono_s", "sent_bytes", "backlog_bytes", "rate_bps")))
            ok = value is None or ROUGHLY[0] <= value <= ROUGHLY[1]
            text = f"{link} from {source} delivered about {value or 0:.2f} of its changing rate while backlogged"
            yield Check(f"changing rate {link} from {source}", value, ROUGHLY[0], ok, text)


def _unless(interrupted: bool, check: Check) -> Check:
    """Judge nothing by losses where a link was down: nobody counts what was sent into it."""
    return replace(check, limit=None, ok=True, text="not judged: a link was down") if interrupted else check


def replicas(workers: list[dict[str, Any]]) -> Check:
    """Demand that all workers ended with the same model, bit by bit."""
    digests = {worker["parameter_digest"] for worker in workers}
    return Check("replicas", float(len(digests)), 1.0, len(digests) == 1, "the workers' models differ at the end")


def _snapshots(evidence: Evidence, measured: Window) -> Check:
    """Demand that the counters were read up to both ends of the measured part."""
    unseen_s = max(measured.first["mono_s"] - evidence.start_s, evidence.end_s - measured.last["mono_s"])
    text = f"the emulator's counters were not read for {unseen_s:.1f} s of the measured part"
    return Check("snapshots", unseen_s, MOST_UNSEEN_S, unseen_s <= MOST_UNSEEN_S, text)


def _sampling(evidence: Evidence) -> Check:
    """Demand that the bottlenecks were looked at as often as planned, from the first measured step to the last.

    A recorder that was starved sees only the good moments, and one that died none of the rest.
    """
    links, planned_s = evidence.links, intervals_s(evidence.network)
    shares = [1.0]
    for direction in evidence.network.directions():
        fixed = direction.spec.queue_bytes is not None
        if direction.bottleneck and fixed and planned_s.get(direction.name, COARSE_INTERVAL_S) < COARSE_INTERVAL_S:
            taken = int(((links["link"] == direction.link) & (links["source"] == direction.source)).sum())
            wanted = evidence.seconds / planned_s[direction.name] * len(direction.spec.queues())
            shares.append(taken / wanted)
    share = min(shares)
    text = f"only {share:.0%} of the bottleneck's samples were taken in time"
    return Check("sampling", share, LEAST_SAMPLED, share >= LEAST_SAMPLED, text)


def _dropped(links: pd.DataFrame, hosts: Sequence[str]) -> tuple[float, float]:
    """Return how many packets full queues have refused: on the hosts' uplinks, and in the switches."""
    keys = [key for key in ("link", "source", "queue") if key in links.columns]
    counters = links.groupby(keys, dropna=False)["dropped_packets"]
    grown = counters.max() - counters.min()
    on_uplinks = grown.index.get_level_values("source").isin(hosts)
    return float(grown[on_uplinks].sum()), float(grown[~on_uplinks].sum())


def _switch_losses(whole: Window, dropped: float) -> Check:
    """Accept frames lost inside the switches only beside queues that overflowed, a batch for each counted drop."""
    lost = whole.growth("switch_lost")
    limit = BATCH_FRAMES * dropped
    return Check("switch losses", lost, limit, lost <= limit, f"{lost:.0f} frames were lost in the switches, {dropped:.0f} by full queues")


def _wire(evidence: Evidence) -> Check:
    """Judge the workers' bytes where no others are in the same counters."""
    resent = 0.0 if evidence.whole is None else evidence.whole.growth("tcp", "RetransSegs")
    own = max(0.0, resent - beside.retransmits(evidence.background))
    left_out = beside.on_own_host(evidence.steps, evidence.background, evidence.network.hosts, evidence.dilation)
    return Check("bytes on the wire", *wire.compare(evidence.steps, left_out, evidence.workers, evidence.mtu, own))


def _waiting(measured: Window, role: str) -> Check:
    share = measured.growth("waited_s", role) / measured.seconds
    return Check(f"{role} waiting", share, MOST_WAITING, share < MOST_WAITING, f"{role} waited for a CPU {share:.1%} of the time")


def _zero(name: str, value: float, text: str) -> Check:
    return Check(name, value, 0.0, value == 0, text.format(value))


def _send_errors(measured: Window) -> float:
    return sum(measured.growth("delay", "directions", name, "send_errors") for name in measured.last["delay"]["directions"])


def _lateness(measured: Window, network: Network, dilation: float) -> list[Check]:
    """Limit the lateness in the experiment's time, as it is what the delay is off by there; what the histogram cannot tell is too late."""
    found = []
    for direction in network.directions():
        if direction.name not in measured.last["delay"]["directions"]:
            continue
        late_s = lateness_p99_s(measured, direction.name)
        limit_s = min(max(MOST_LATENESS_S * dilation, MOST_LATENESS * direction.spec.delay_s), LATENESS_BUCKETS * LATENESS_BUCKET_S)
        ok = late_s is None or late_s < limit_s
        text = f"the delay line sent 1 % of the frames of {direction.name} over {(late_s or 0) * 1e3:.2f} ms late"
        found.append(Check(f"lateness {direction.name}", late_s, limit_s, ok, text))
    return found


def lateness_p99_s(measured: Window, direction: str) -> float | None:
    """Return the 99th percentile of a direction's lateness over the window."""
    first = measured.first["delay"]["directions"][direction]["lateness"]
    last = measured.last["delay"]["directions"][direction]["lateness"]
    grown = sorted((int(bucket), count - first.get(bucket, 0)) for bucket, count in last.items())
    total = sum(count for _, count in grown)
    if total == 0:
        return None
    cumulative = np.cumsum([count for _, count in grown])
    return (grown[int(np.searchsorted(cumulative, 0.99 * total))][0] + 1) * LATENESS_BUCKET_S


def _retransmissions(measured: Window, lost: float) -> Check:
    """Compare retransmitted segments with lost frames, and with those that were needless: probes, or already received."""
    retransmitted = measured.growth("tcp", "RetransSegs")
    # Receivers report what they had already, newer kernels count it by segment; a needless probe is among it, so nothing is added.
    reports = measured.growth("tcp", "TCPDSACKRecv") + measured.growth("tcp", "TCPDSACKOfoRecv")
    spurious = max(measured.growth("tcp", "TCPLossProbes"), reports, measured.growth("tcp", "TCPDSACKRecvSegs"))
    unexplained = max(0.0, retransmitted - lost - spurious)
    limit = max(5.0, 0.02 * retransmitted)
    text = f"{unexplained:.0f} of {retransmitted:.0f} TCP retransmissions are explained by no counted drop"
    return Check("retransmissions", unexplained, limit, unexplained <= limit, text)
