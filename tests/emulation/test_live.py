"""A run on a fabric with several paths, watched and steered through its API while it goes on."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from controller.client import Client, ClientError
from tests.emulation.experiments import ROOT, command, manifest, start, wait_until
from tests.measuring import measured

pytestmark = [pytest.mark.usefixtures("emulation"), measured]

FABRIC = """
name: fabric
topology: {kind: leafspine, workers: 4, leaves: 2, spines: 2, fabric: {rate: 20mbit, delay: 2ms}, access: {rate: 40mbit}}
workload: {kind: replay, model: resnet8, compute: 30ms, budget: {seconds: 10}}
schemes: [netsense-sdn]
"""
PORT = 9464


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Run the experiment; ask everything there is to ask while it trains."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "fabric.yaml").write_text(FABRIC)
    run = folder / "results" / "fabric" / "netsense-sdn"
    process = start(command(folder / "fabric.yaml", "--listen", str(PORT)))
    seen = {"run": run}
    try:
        steps = run / "stream" / "steps-0.jsonl"
        wait_until(lambda: (steps.exists() and steps.stat().st_size > 0) or process.poll() is not None, 60, "training began")
        here, there = Client(run), Client(f"http://127.0.0.1:{PORT}")
        seen["links"], seen["by_tcp"], seen["topology"], seen["before"] = here.links(), there.links(), here.topology(), here.paths()
        path = next(path for path in seen["before"] if path[0] == "h1" and path[-1] == "h3")
        other = [*path[:2], "p2" if path[2] == "p1" else "p1", *path[3:]]
        here.pin(other)
        seen["pinned"], seen["after"] = other, here.paths()
        seen["refusals"] = []
        for wrong in (["h1", "l1", "h3"], ["h1", "/etc/passwd", "h3"], [], ["h1", "l1", "p9", "l2", "h3"]):
            with pytest.raises(ClientError) as refusal:
                here.pin(wrong)
            seen["refusals"].append(str(refusal.value))
        with closing(here.stream(interval_s=0.05)) as stream:
            seen["stream"] = [next(stream) for _ in range(20)]
        seen["metrics"] = here.metrics()
        seen["listeners"] = [line for line in Path("/proc/net/tcp").read_text().splitlines() if f":{PORT:04X} " in line and " 0A " in line]
        seen["six"] = [line for line in Path("/proc/net/tcp6").read_text().splitlines() if f":{PORT:04X} " in line and " 0A " in line]
        watch = subprocess.run(
            [sys.executable, "-m", "testbed", "watch", str(run), "--once", "--json"], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        seen["watch"] = watch.stdout
    finally:
        seen["output"] = process.communicate(timeout=120)[0]
        seen["code"] = process.returncode
    assert "(again)" not in seen["output"], seen["output"]  # a busy machine's run is done once more, and then nobody steers it
    return seen


def test_the_run_is_complete_and_valid(watched):
    assert watched["code"] == 0, watched["output"]
    told = manifest(watched["run"].parent, "netsense-sdn")
    assert told["valid"], told["invalid_reasons"]
    assert {path[2] for path in told["paths"] if len(path) == 5} == {"p1", "p2"}


def test_links_are_live_by_socket_and_by_tcp(watched):
    names = {link["id"] for link in watched["links"]}
    assert names == {link["id"] for link in watched["by_tcp"]}
    assert {"fabric-l1-p1:l1->p1", "access-h1:h1->l1", "access-h1:l1->h1"} <= names
    assert len(names) == 16
    assert all(link["age_s"] < 1.0 for link in watched["links"])
    fabric = [link for links in watched["stream"] for link in links if link["link"].startswith("fabric")]
    assert max(link["utilisation"] for link in fabric) > 0.1
    assert max(link["utilisation"] for link in fabric) < 1.2
    assert all(link["configured_bps"] == 20e6 for link in fabric)


def test_a_pair_can_be_pinned_and_nonsense_cannot(watched):
    assert watched["pinned"] in watched["after"] and watched["pinned"] not in watched["before"]
    assert watched["pinned"][::-1] in watched["after"]
    assert all(refusal for refusal in watched["refusals"])


def test_prometheus_can_read_it_and_nothing_listens_beyond_loopback(watched):
    assert re.search(r'^testbed_\w+\{.*link="fabric-l1-p1".*\} [0-9.e+-]+$', watched["metrics"], re.MULTILINE)
    assert [line.split()[1].split(":")[0] for line in watched["listeners"]] == ["0100007F"]
    assert watched["six"] == []


def test_watch_shows_links_and_workers(watched):
    shown = json.loads(watched["watch"])
    assert len(shown["links"]) == 16
    assert len(shown["workers"]) == 4


def test_the_records_hold_queue_and_openflow_counters(watched):
    links = pd.read_parquet(watched["run"] / "links.parquet")
    assert set(links["link"]) == {f"fabric-l{leaf}-p{spine}" for leaf in (1, 2) for spine in (1, 2)} | {
        f"access-h{i}" for i in (1, 2, 3, 4)
    }
    ports = links[links["queue_tx_bytes"].notna()]
    assert set(ports["source"]) == {"l1", "l2", "p1", "p2"}
    uplink = links[(links["link"] == "access-h1") & (links["source"] == "h1")]
    rate_hz = (len(uplink) - 1) / (uplink["t_s"].max() - uplink["t_s"].min())
    assert rate_hz == pytest.approx(50, rel=0.1)
    events = pd.read_parquet(watched["run"] / "events.parquet")
    assert {"booted", "pinned"} <= set(events["kind"])


def test_after_the_run_the_client_says_so(watched):
    with pytest.raises(ClientError, match="the run is over"):
        Client(watched["run"]).links()
