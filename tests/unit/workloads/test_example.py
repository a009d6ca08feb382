"""The example script: it runs as its first lines say, and is the plain tutorial but for one line."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from groups import free_port

from tests.unit.workloads.preloaded import Preloaded
from workloads.datasets.fashion_mnist import FOLDER

SCRIPT = Path(__file__).resolve().parents[3] / "docs/examples/train_ddp.py"
LIMIT_S = "150"

installed = pytest.mark.skipif(not FOLDER.exists(), reason="needs the package dataset-fashion-mnist")


FORKED = """
import os, runpy, sys
os.chdir({folder!r})
os.environ |= {environment!r}
sys.argv = {command!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_by_torchrun(scheme: str, folder: Path) -> str:
    """Run the script on two processes, from a folder that is not the project's; return what it prints."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    # timeout asks torchrun to end, which then ends its workers; killing torchrun would leave them behind
    done = subprocess.run(["timeout", LIMIT_S, *torchrun, str(SCRIPT), scheme], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_by_forks(scheme: str, folder: Path, python: Preloaded) -> str:
    """Do the same without importing torch thrice: torchrun gives its processes no more than these variables for the script to read."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    environments = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    command = [str(SCRIPT), scheme]
    with python.forks([FORKED.format(folder=str(folder), environment=given, command=command) for given in environments]) as forks:
        assert [fork.wait(float(LIMIT_S)) for fork in forks] == [0, 0], forks[0].complained[-3000:]
        return "".join(fork.said for fork in forks)


def sent_bytes(printed: str, scheme: str) -> int:
    found = re.search(rf"^{scheme}: sent ([\d,]+) bytes for [\d,]+ bytes of gradients", printed, re.MULTILINE)
    assert found, printed
    return int(found[1].replace(",", ""))


@installed
def test_it_trains_with_and_without_compression(tmp_path: Path, python: Preloaded) -> None:
    printed = {"netsense": run_by_torchrun("netsense", tmp_path), "none": run_by_forks("none", tmp_path, python)}
    for text in printed.values():
        assert "replicas identical" in text.splitlines()
        assert [float(a) > 0.5 for a in re.findall(r"accuracy ([\d.]+)", text)][-1]
    assert sent_bytes(printed["netsense"], "netsense") < sent_bytes(printed["none"], "none")


def test_one_line_and_its_import_make_the_difference() -> None:
    lines = SCRIPT.read_text().splitlines()
    assert [line for line in lines if "workloads.hooks" in line] == ["from workloads.hooks import attach, stats"]
    assert [line for line in lines if line.strip().startswith("attach(")] == ["    attach(model, scheme)"]
    names = [node.id for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Name)]
    assert (names.count("attach"), names.count("stats")) == (1, 1)
