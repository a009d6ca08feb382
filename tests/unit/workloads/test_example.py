"""The example script: it runs as its first lines say, and is the plain tutorial but for one line."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.datasets.fashion_mnist import FOLDER

SCRIPT = Path(__file__).resolve().parents[3] / "docs/examples/train_ddp.py"
LIMIT_S = "150"

installed = pytest.mark.skipif(not FOLDER.exists(), reason="needs the package dataset-fashion-mnist")


def run(scheme: str, folder: Path) -> str:
    """Run the script on two processes, from a folder that is not the project's; return what it prints."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    # timeout asks torchrun to end, which then ends its workers; killing torchrun would leave them behind
    done = subprocess.run(["timeout", LIMIT_S, *torchrun, str(SCRIPT), scheme], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def sent_bytes(printed: str, scheme: str) -> int:
    found = re.search(rf"^{scheme}: sent ([\d,]+) bytes for [\d,]+ bytes of gradients", printed, re.MULTILINE)
    assert found, printed
    return int(found[1].replace(",", ""))


@installed
def test_it_trains_with_and_without_compression(tmp_path: Path) -> None:
    printed = {scheme: run(scheme, tmp_path) for scheme in ("none", "netsense")}
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
