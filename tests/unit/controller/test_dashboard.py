"""Grafana's dashboard asks for metrics and labels that /metrics really has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from api_source import NOW_S, FakeRun, entries

from controller.metrics import LABELS, exposition

DOCKER = Path(__file__).resolve().parents[3] / "docker"
DASHBOARD = json.loads((DOCKER / "grafana/dashboards/testbed.json").read_text())
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def exported() -> set[str]:
    text = exposition(entries(), FakeRun().run(), NOW_S).decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def test_every_query_is_of_a_metric_that_is_exported():
    queries = [target["expr"] for target in TARGETS] + [one["query"]["query"] for one in DASHBOARD["templating"]["list"]]
    asked = {name for query in queries for name in re.findall(r"testbed_\w+", query)}
    assert len(asked) > 5
    assert asked <= exported()


def test_every_legend_names_labels_that_are_exported():
    asked = {label for target in TARGETS for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])}
    assert asked <= {*LABELS, *FakeRun().run()}


def test_every_panel_asks_the_provisioned_source_which_scrapes_what_compose_runs():
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"][0]
    assert {target["datasource"]["uid"] for target in TARGETS} == {source["uid"]}
    services = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())["services"]
    assert source["url"].removeprefix("http://").split(":")[0] in services
    scraped = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"][0]
    name, port = scraped.split(":")
    assert f"--listen 0.0.0.0:{port} " in services[name]["command"]
