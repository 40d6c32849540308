"""Proves of the dashboards and rules in `deploy` that each selector finds series of `/metrics`, that each
alert says what happened and what to do, and that dashboards are small. No server runs here."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from sandbox.options import ROOT
from tests import promql
from tests.web import factories

DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
RULES: Any = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"
MOST_PANELS = 12
#: Families without the label cluster.
OF_NO_CLUSTER = re.compile("fenceline_(build_info|channel_|deliveries)")

Sample = tuple[str, Mapping[str, str]]


@pytest.fixture
def samples(client: Client) -> list[Sample]:
    """Names and labels of all series of one cluster with one channel."""
    factories.watched_cluster()
    factories.channel()
    told = client.get("/metrics").content.decode()
    families = text_string_to_metric_families(told)
    return [(sample.name, sample.labels) for family in families for sample in family.samples]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every expression with the name of its panel, variable or alert."""
    for path in DASHBOARDS:
        for panel in promql.panels(path):
            yield from ((f"{path.stem}: {panel.title}", text) for text in panel.expressions)
    yield from ((rule["alert"], rule["expr"]) for rule in ALERTS)


@pytest.mark.django_db
def test_each_selector_finds_series(samples: list[Sample]) -> None:
    checked = list(expressions())
    assert len(checked) > 50
    for where, text in checked:
        for selector in promql.selectors(promql.with_variables(text, cluster="prod")):
            assert any(selector.takes(*sample) for sample in samples), f"{where}: {selector}"


@pytest.mark.django_db
def test_dashboards_and_rules_leave_out_few_families(samples: list[Sample]) -> None:
    used = {selector.name for _, text in expressions() for selector in promql.selectors(text)}
    served = {name for name, _ in samples if not name.endswith(("_count", "_created"))}
    assert served - used == {"fenceline_actions", "fenceline_flink_jobs"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_small_and_asks_the_chosen_prometheus(path: Path) -> None:
    board: Any = json.loads(path.read_text())
    assert len(board["panels"]) <= MOST_PANELS
    assert {each["name"] for each in board["templating"]["list"]} >= {"cluster", "datasource"}
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in board["panels"]:
        assert panel["datasource"] == chosen
        assert panel["title"]
        assert panel["description"].endswith(".")
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            assert ("$cluster" in target["expr"]) is not bool(OF_NO_CLUSTER.search(target["expr"]))


def test_dashboards_have_names_and_addresses_of_their_own() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert {path.stem for path in DASHBOARDS} == {"overview", "cluster", "spark-queries", "fenceline"}
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards)
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_no_two_panels_overlap() -> None:
    for path in DASHBOARDS:
        panels = json.loads(path.read_text())["panels"]
        cells = [cell for panel in panels for cell in _cells(panel["gridPos"])]
        assert len(cells) == len(set(cells)), path.stem


def _cells(place: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        yield from ((x, y) for y in range(place["y"], place["y"] + place["h"]))


def test_grafana_is_told_where_dashboards_and_prometheus_are() -> None:
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "fenceline.yml").read_text())["providers"]
    assert provider["type"] == "file"
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    assert provider["options"]["path"] in metrics


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_happened_and_what_to_do(rule: Mapping[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description"}
    for text in rule["annotations"].values():
        assert text.endswith(".")
        assert all(len(sentence.split()) <= 25 for sentence in text.split(". "))
    assert re.fullmatch(r"\d+m", rule.get("for", "1m"))


def test_alerts_have_names_of_their_own() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) > 15
