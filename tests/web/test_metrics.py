"""Proves what Prometheus is told: by its own parsers, for every noun, bounded, and to whom it is told; and
that OTLP carries the same, to a receiver that reads it by OpenTelemetry's own schema."""

import logging
import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from dashboard.models import Cluster, Token
from dashboard.runtime import loop
from dashboard.system.metrics_export import export_families
from dashboard.system.tokens import token_digest
from dashboard.tasks import schedule
from dashboard.transactions import sql as transaction_sql
from fenceline.facts import TransactionState, TransitionKind
from fenceline.kafka.fold.counting import MinuteTally
from sandbox.options import ROOT
from tests.cases import cases
from tests.receivers import Receiver, answer
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db

ELSEWHERE = "10.0.0.7"
MINUTE_MS = 1_795_000_020_000

Labels = frozenset[tuple[str, str]]
Value = Callable[..., float | None]


def told(client: Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.content.decode()


@pytest.fixture
def value(client: Client) -> Value:
    """A function that scrapes once and returns the value of a series, None where there is none."""
    found: dict[tuple[str, Labels], float] = {}

    def value(name: str, **labels: str) -> float | None:
        if not found:
            for family in prometheus(told(client)):
                for each in family.samples:
                    key = each.name.removeprefix("fenceline_"), frozenset(each.labels.items())
                    assert key not in found, f"{key} is told twice"
                    found[key] = each.value
        return found.get((name, frozenset(labels.items())))

    return value


def test_both_formats_are_what_their_parsers_take(client: Client) -> None:
    scenarios.busy_transactions(factories.cluster("prod"))
    families = {family.name: family for family in prometheus(told(client))}
    asked = client.get("/metrics", HTTP_ACCEPT="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert asked["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    same = {family.name: family for family in openmetrics(asked.content.decode())}
    assert len(same) == len(families) > 25
    assert all(name.startswith("fenceline_") for name in same)
    assert all(family.documentation for family in same.values())


def test_every_family_is_explained(client: Client) -> None:
    factories.cluster()
    families = set(re.findall(r"^# TYPE (\S+) ", told(client), re.MULTILINE))
    lines = (ROOT / "docs" / "metrics.md").read_text().splitlines()
    explained = {line.split("`")[1].partition("{")[0] for line in lines if line.startswith("| `fenceline_")}
    assert explained == families


def test_what_is_there_is_counted(value: Value) -> None:
    of = factories.cluster("prod")
    scenarios.busy_transactions(of)
    factories.gap(of)
    factories.partition(of, verdict="hanging", pinned_ms=factories.now_ms() - 90_000)
    factories.partition(of, number=1, verdict="clear")
    factories.group(of, "billing", "BLOCKED", lag_lso=10, lag_hw=40, lag_ms=2_500, blocked=1)
    factories.group(of, "audit", lag_lso=5, lag_hw=5, lag_ms=100, unstable=2)
    factories.group(of, "new", "STOP", lag_lso=None, lag_hw=None, lag_ms=None)
    factories.query(of, "a", "id-a", prepared=1)
    factories.query(of, "b", "id-b", heard_ms=factories.now_ms() - 600_000)
    factories.flink_run(factories.flink_job(of))
    factories.connector(of)
    assert value("transactions", cluster="prod", state="Ongoing") == 20
    assert (value("open_transaction_seconds_max", cluster="prod") or 0) >= 3_900
    assert value("findings", cluster="prod", rule="open_too_long", severity="critical") == 1
    assert value("gaps", cluster="prod", source="transaction_state") == 1
    assert value("partitions", cluster="prod", verdict="hanging") == 1
    assert (value("lso_pinned_seconds_max", cluster="prod") or 0) >= 90
    assert value("groups", cluster="prod", status="OK") == 1
    assert value("groups", cluster="prod", status="BLOCKED") == 1
    assert value("groups", cluster="prod", status="STOP") == 1
    assert value("groups_blocked", cluster="prod") == 1
    assert value("groups_pending", cluster="prod") == 1
    assert value("group_lag_records", cluster="prod", to="lso") == 15
    assert value("group_lag_records", cluster="prod", to="high_watermark") == 45
    assert value("group_lag_seconds_max", cluster="prod") == 2.5
    assert value("queries", cluster="prod", state="running") == 1
    assert value("queries", cluster="prod", state="unheard") == 1
    assert value("queries_prepared", cluster="prod") == 1
    assert value("flink_jobs", cluster="prod") == 1
    assert value("flink_jobs_unreadable", cluster="prod") == 0
    assert value("flink_runs", cluster="prod", state="RESTARTING") == 1
    assert value("connector_tasks", cluster="prod", state="FAILED") == 1


def test_collectors_and_what_they_cost_are_told(value: Value) -> None:
    of = factories.cluster("prod")
    seen = {"behind": 12, "seen_through_ms": factories.now_ms() - 5_000}
    factories.collector(of, **seen, requests=40, broker_ms=2_500, undecoded={"value_version": 3, "key": 1})
    factories.collector(of, "partitions", behind=None, seen_through_ms=None, error="no route")
    tail = {"cluster": "prod", "collector": "transaction_state"}
    blind = {"cluster": "prod", "collector": "partitions"}
    assert 5 <= (value("collector_seen_seconds_ago", **tail) or 0) < 60
    assert value("collector_seen_seconds_ago", **blind) == float("inf")
    assert [value("collector_behind_records", **each) for each in (tail, blind)] == [12, None]
    assert [value("collector_failing", **each) for each in (tail, blind)] == [0, 1]
    assert value("collector_alive", **tail) == 1
    assert value("collector_records_total", **tail) == 1_204_311
    assert value("collector_undecoded_total", **tail) == 4
    assert value("broker_requests_total", **tail) == 40
    assert value("broker_wait_seconds_total", **tail) == 2.5


def test_the_dead_mans_figure_is_never_missing(value: Value) -> None:
    factories.collector(factories.cluster("prod"), "judge", seen_through_ms=factories.now_ms() - 40_000)
    factories.cluster("staging")
    assert 40 <= (value("judgement_age_seconds", cluster="prod") or 0) < 100
    assert value("judgement_age_seconds", cluster="staging") == float("inf")


def test_what_counts_nothing_is_there_as_well(value: Value) -> None:
    factories.cluster("prod")
    for name, labels in (
        ("findings", {"rule": "hanging", "severity": "critical"}),
        ("alerts", {"severity": "critical", "state": "firing"}),
        ("transactions", {"state": "PrepareCommit"}),
        ("transitions_total", {"kind": "takeover"}),
        ("partitions", {"verdict": "hanging"}),
        ("groups", {"status": "STALL"}),
        ("queries", {"state": "failed"}),
        ("actions", {"act": "fence", "state": "done"}),
        ("lso_pinned_seconds_max", {}),
        ("commit_open_seconds_bucket", {"le": "+Inf"}),
    ):
        assert value(name, cluster="prod", **labels) == 0, name


def test_alerts_channels_deliveries_and_actions_are_counted(value: Value) -> None:
    of = factories.cluster("prod")
    for number, state in enumerate(("firing", "firing", "pending", "resolved")):
        factories.alert(of, f"partition:payments-{number}", state)
    pager = factories.channel("pager", failures=2)
    factories.channel("chat", enabled=False)
    for state in ("delivered", "delivered", "failed"):
        factories.delivery(pager, state)
    factories.executed_action()
    assert value("alerts", cluster="prod", severity="critical", state="firing") == 2
    assert value("alerts", cluster="prod", severity="critical", state="pending") == 1
    assert value("alerts", cluster="prod", severity="critical", state="resolved") is None
    assert [value("channel_usable", channel=name) for name in ("pager", "chat")] == [1, 0]
    assert value("channel_failures", channel="pager") == 2
    assert value("deliveries", channel="pager", state="delivered") == 2
    assert value("deliveries", channel="pager", state="failed") == 1
    assert value("deliveries", channel="chat", state="pending") == 0
    assert value("actions", cluster="prod", act="fence", state="done") == 1


def test_counters_of_transitions_never_fall(client: Client, value: Value) -> None:
    of = factories.cluster("prod")
    first = MinuteTally({TransitionKind.TIMEOUT: 2, TransitionKind.COMMIT: 3}, {2: 2, 40: 1}, {1: 3})
    transaction_sql.add_tallies(of.pk, 0, {("payments", MINUTE_MS): first})
    # A verdict that is revised is taken back where it was counted; a counter keeps it and counts it anew.
    revised = MinuteTally(
        {TransitionKind.TIMEOUT: -1, TransitionKind.TAKEOVER: 1, TransitionKind.COMMIT: 1}, {2: 1}, {1: 1}
    )
    transaction_sql.add_tallies(of.pk, 1, {("payments", MINUTE_MS): revised})
    assert value("transitions_total", cluster="prod", kind="timeout") == 2
    assert value("transitions_total", cluster="prod", kind="takeover") == 1
    assert value("transitions_total", cluster="prod", kind="commit") == 4
    # Bucket 2 are 2 ms, bucket 40 begins at 128 ms.
    assert value("commit_open_seconds_bucket", cluster="prod", le="0.004") == 3
    assert value("commit_open_seconds_bucket", cluster="prod", le="0.128") == 3
    assert value("commit_open_seconds_bucket", cluster="prod", le="0.256") == 4
    assert value("commit_open_seconds_bucket", cluster="prod", le="+Inf") == 4
    assert value("commit_markers_seconds_bucket", cluster="prod", le="0.004") == 4


def test_a_scrape_asks_as_much_and_says_as_much_however_much_there_is(client: Client) -> None:
    of = factories.cluster("prod")
    factories.tail_collectors(of)
    with CaptureQueriesContext(connection) as few:
        lines = len(told(client).splitlines())
    for number, raw in enumerate(factories.HOSTILE_IDS):
        factories.transaction(of, raw, TransactionState.ONGOING)
        factories.partition(of, number=number, verdict="open")
        factories.group(of, f"group-{number}")
    with CaptureQueriesContext(connection) as many:
        text = told(client)
    assert len(text.splitlines()) == lines
    assert len(many) == len(few) < 20
    for number in range(2, 8):
        factories.tail_collectors(factories.cluster(f"cluster-{number}"))
    with CaptureQueriesContext(connection) as clusters:
        told(client)
    assert len(clusters) == len(few)
    assert not re.search("payments|script|group-1", text)


def test_a_cluster_that_is_not_configured_any_more_is_not_told_of(client: Client) -> None:
    of = factories.cluster("gone")
    scenarios.busy_transactions(of, ids=20)
    factories.gap(of)
    Cluster.objects.filter(pk=of.pk).update(configured=False)
    assert "gone" not in told(client)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_a_client_on_this_machine_needs_no_token(client: Client, address: str) -> None:
    assert client.get("/metrics", REMOTE_ADDR=address).status_code == 200


@cases(
    {},
    {"HTTP_AUTHORIZATION": "Bearer wrong"},
    {"HTTP_AUTHORIZATION": "Basic c2VjcmV0"},
    {"HTTP_AUTHORIZATION": "Bearer"},
    {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
    {"HTTP_FORWARDED": "for=127.0.0.1"},
    {"HTTP_X_REAL_IP": "::1"},
    {"REMOTE_ADDR": ""},
    {"REMOTE_ADDR": "localhost"},
)
def test_nobody_else_gets_in_whatever_a_header_says(client: Client, headers: dict[str, str]) -> None:
    answer = client.get("/metrics", **({"REMOTE_ADDR": ELSEWHERE} | headers))
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")


def test_what_a_proxy_on_this_machine_passes_on_comes_from_elsewhere(client: Client) -> None:
    answer = client.get("/metrics", REMOTE_ADDR="127.0.0.1", HTTP_X_FORWARDED_FOR="203.0.113.5")
    assert answer.status_code == 401


def test_where_a_proxy_may_be_everybody_needs_a_token(client: Client, settings: Any) -> None:
    settings.IS_BEHIND_PROXY = True
    Token.objects.create(name="ci", role="viewer", digest=token_digest("secret"))
    for headers, status in (({}, 401), ({"Authorization": "Bearer secret"}, 200)):
        answer = client.get("/metrics", REMOTE_ADDR="127.0.0.1", headers=headers)
        assert answer.status_code == status


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    with Receiver() as receiver:
        settings.OTLP_ENDPOINT = receiver.url
        yield receiver


def scraped(client: Client) -> Series:
    """Return what Prometheus is told, but for ages, which differ from one instant to the next."""
    families = prometheus(client.get("/metrics").content.decode())
    samples = (sample for family in families for sample in family.samples)
    return {(each.name, frozenset(each.labels.items())): each.value for each in samples}


def labels_of(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def pushed(body: bytes) -> Series:
    """Return what was pushed, by the names that Prometheus has for it."""
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert labels_of(resource.resource)["service.name"] == "fenceline"
    found: Series = {}
    for metric in resource.scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        suffix = {"sum": "_total", "gauge": "_info" if metric.name == "fenceline_build" else ""}.get(kind, "")
        for point in getattr(metric, kind).data_points:
            labels = labels_of(point)
            if kind != "histogram":
                found[metric.name + suffix, frozenset(labels.items())] = point.as_double
                continue
            assert not point.HasField("sum")
            for bound, upto in zip(
                (*point.explicit_bounds, "+Inf"), accumulate(point.bucket_counts), strict=True
            ):
                key = frozenset((labels | {"le": str(bound)}).items())
                found[f"{metric.name}_bucket", key] = upto
            found[f"{metric.name}_count", frozenset(labels.items())] = point.count
    return found


def test_what_is_pushed_is_what_is_scraped(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = factories.cluster("prod")
    scenarios.busy_transactions(of)
    scenarios.busy_partitions(of)
    factories.gap(of)
    at_ms = loop.now_ms()
    monkeypatch.setattr(loop, "now_ms", lambda: at_ms)
    schedule.export_metrics()
    (request,) = receiver.received
    assert request.path == "/hook"
    told = scraped(client)
    assert len(told) > 200
    # A histogram without a sum has no count in Prometheus' text, whose last bucket says the same.
    assert {
        key: value for key, value in pushed(request.body).items() if not key[0].endswith("_count")
    } == told


def test_a_push_that_is_refused_is_one_line(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    factories.cluster("prod")
    receiver.manners = [answer(400)]
    with caplog.at_level(logging.WARNING, "dashboard"):
        export_families(loop.now_ms())
    (line,) = caplog.records
    assert f"metrics were not taken at {receiver.url}" in line.getMessage()
