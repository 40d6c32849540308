"""Proves on a whole stack with its demo and a real Prometheus that each expression of Grafana's dashboards
returns series, that each variable has values, and that Prometheus evaluates each rule."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.options import ROOT
from tests import promql
from tests.deployment import Stack
from tests.matrix.prometheus import PrometheusServer
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.matrix]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
#: What `make up` calls the cluster of its own broker.
CLUSTER = "sandbox"
#: The demo's Spark has to start, and its first finding needs minutes.
DEADLINE_S = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes a stack with the demo."""
    folder = tmp_path_factory.mktemp("panels")
    (folder / "prometheus").mkdir()
    with Stack(folder, DEMO="lite") as stack:
        target = stack.url.removeprefix("http://")
        with PrometheusServer(folder / "prometheus", target) as server:
            yield server


def test_the_variable_of_the_cluster_has_values(server: PrometheusServer) -> None:
    names = wait_for(lambda: server.api("label/cluster/values"), "a cluster is scraped")
    assert names == [CLUSTER]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_expression_returns_series(server: PrometheusServer, path: Path) -> None:
    for panel in promql.panels(path):
        for text in panel.expressions:
            expression = promql.with_variables(text, cluster=CLUSTER)
            values = wait_for(
                lambda expression=expression: server.query(expression),
                f"{panel.title} has series: {expression}",
                DEADLINE_S,
                until=lambda found: found and not any(map(math.isnan, found.values())),
            )
            assert all(value >= 0 for value in values.values()), panel.title


def test_each_rule_is_evaluated(server: PrometheusServer) -> None:
    def rules() -> list[dict[str, str]]:
        return [rule for group in server.api("rules")["groups"] for rule in group["rules"]]

    evaluated = wait_for(
        rules,
        "each rule was evaluated",
        until=lambda found: all(each["health"] != "unknown" for each in found),
    )
    assert len(evaluated) > 15
    assert {(each["health"], each.get("lastError")) for each in evaluated} == {("ok", None)}


def test_a_running_stack_is_not_reported_blind(server: PrometheusServer) -> None:
    def firing() -> set[str]:
        return {
            each["labels"]["alertname"]
            for each in server.api("alerts")["alerts"]
            if each["state"] == "firing"
        }

    wait_for(lambda: server.query("fenceline_judgement_age_seconds < 10"), "the rules are evaluated")
    assert not firing() & {"FencelineDown", "FencelineBlind", "FencelineRecordsUndecoded"}
