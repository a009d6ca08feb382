"""A whole experiment, from the file to the figures, on a real network with real training."""

import json

import pandas as pd
import pytest

from tests.emulation.experiments import command, manifest, run_when_calm, write_tiny

pytestmark = pytest.mark.usefixtures("emulation")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    experiment = write_tiny(tmp_path_factory.mktemp("whole"), seconds=5, schemes="none, topk-0.01")
    done = run_when_calm(command(experiment, "--json", report=True), timeout_s=280)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = experiment.parent / "results" / "tiny"
    assert json.loads(done.stdout)["folder"] == str(folder)
    return folder


def test_every_run_is_complete_and_says_what_it_measured(results):
    for run in ("none", "topk-0.01"):
        told = manifest(results, run)
        assert told["status"] == "complete"
        assert not (results / run / "stream").exists()
        assert {check["name"] for check in told["checks"]} >= {
            "fidelity",
            "replicas",
            "bytes on the wire",
            "vswitchd waiting",
            "retransmissions",
        }
        assert told["verification"]["rates"]
        assert told["verification"]["rtts"][0]["configured_s"] == pytest.approx(0.004)
        assert told["valid"] == all(check["ok"] for check in told["checks"])
        assert told["valid"], told["invalid_reasons"]


def test_the_workers_end_with_identical_models(results):
    for run in ("none", "topk-0.01"):
        digests = {worker["parameter_digest"] for worker in manifest(results, run)["workers"]}
        assert len(digests) == 1


def test_the_parts_of_every_step_add_up_and_the_wire_agrees_with_the_scheme(results):
    for run in ("none", "topk-0.01"):
        steps = pd.read_parquet(results / run / "steps.parquet")
        assert len(steps) > 10
        parts = steps[["compute_s", "encode_s", "exchange_s", "decode_s"]].sum(axis=1)
        assert (parts - steps["step_s"]).abs().max() < 1e-6
        # tiny payloads pay more for headers: a few messages of 48 bytes stand beside each of them
        assert 1.0 < steps["wire_bytes_sent"].sum() / steps["bytes_sent"].sum() < (1.1 if run == "none" else 1.3)


def test_compression_saves_bytes_and_training_learns(results):
    summary = pd.read_csv(results / "summary.csv").set_index("scheme")
    assert summary.loc["topk-0.01", "bytes_per_step"] < summary.loc["none", "bytes_per_step"] / 10
    assert summary.loc["none", "final_accuracy"] > 0.5


def test_links_evals_and_figures_are_there(results):
    links = pd.read_parquet(results / "none" / "links.parquet")
    bottleneck = links[links["link"] == "bottleneck"]
    assert bottleneck["backlog_bytes"].max() > 0
    assert bottleneck[bottleneck["source"] == "s1"]["t_s"].diff().median() <= 0.0055
    assert pd.read_parquet(results / "none" / "evals.parquet")["final"].sum() == 1
    for name in ("accuracy_time", "throughput", "bytes_step", "backlog", "overview"):
        assert (results / "figures" / f"{name}.png").stat().st_size > 10_000
        assert (results / "figures" / f"{name}.pdf").exists()
