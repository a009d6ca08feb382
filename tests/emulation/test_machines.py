"""A job by torchrun on two machines that differ in name, network and clock: namespaces of their own, nothing is shaped.

As on Debian, each machine knows its own name by the loopback, so that the interface to the other must be found out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
CLOCK_AHEAD_S = 100_000
EXPERIMENT = """\
name: two
backend: cluster
topology: {kind: machines, workers: 2}
workload: {kind: replay, model: resnet20, compute: 30ms, budget: {seconds: 2}}
schemes: [none, netsense]
"""
# Everything is in namespaces of this shell, and ends with it. $1: the Python, then what torchrun is to start.
TWO_MACHINES = f"""
mount -t tmpfs none /run; mkdir /run/netns
for i in 1 2; do
  ip netns add node$i
  ip -n node$i link set lo up
  printf '127.0.0.1 localhost\\n127.0.1.1 node%s\\n10.0.0.%s node%s\\n' $i $((3 - i)) $((3 - i)) > /run/hosts$i
done
ip -n node1 link add eth1 type veth peer name eth2 netns node2
for i in 1 2; do
  ip -n node$i addr add 10.0.0.$i/24 dev eth$i
  ip -n node$i link set eth$i up
done
start() {{ # the machine, the options of its namespaces, the command
  i=$1; more=$2; shift 2
  ip netns exec node$i unshare --uts --mount $more --fork --kill-child sh -c \
    'hostname node'$i'; mount --bind /run/hosts'$i' /etc/hosts; exec "$@"' sh "$@"
}}
python=$1; shift
set -- $python -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 "$@"
start 2 "--time --monotonic {CLOCK_AHEAD_S}" "$@" > /dev/null 2>&1 &
start 1 "" "$@"
"""
SANDBOX = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-e", "-c", TWO_MACHINES, "sh"]


@pytest.fixture(scope="module")
def results(emulation, tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    (folder / "two.yaml").write_text(EXPERIMENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    done = subprocess.run(
        [*SANDBOX, sys.executable, "-m", "testbed.cluster", "two.yaml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "results" / "two"


@pytest.mark.parametrize("run", ["none", "netsense"])
def test_ranks_on_machines_that_share_nothing_agree_and_are_put_on_one_clock(results, run):
    manifest = json.loads((results / run / "manifest.json").read_text())
    assert manifest["valid"], manifest["invalid_reasons"]
    assert [(one["host"], one["interface"], one["address"]) for one in manifest["machines"]] == [
        ("node1", "eth1", "10.0.0.1"),
        ("node2", "eth2", "10.0.0.2"),
    ]
    assert manifest["notes"] == []  # the interfaces carried the payload and little else
    steps = pd.read_parquet(results / run / "steps.parquet")
    zero, one = (steps[steps["rank"] == rank].set_index("step") for rank in (0, 1))
    assert list(zero.index) == list(one.index)
    assert (zero["t_s"] - one["t_s"]).abs().max() < zero["step_s"].max()
    assert all(rank["wire_bytes_sent"].sum() > rank["bytes_sent"].sum() for rank in (zero, one))
