"""Proves that OTLP carries what /metrics shows: to a receiver that reads it by OpenTelemetry's own schema."""

import logging
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
from django.test import Client
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families as prometheus

from dashboard.runtime import loop
from dashboard.system.metrics_export import export_families
from dashboard.tasks import schedule
from tests.receivers import Receiver, answer
from tests.web import factories, scenarios

pytestmark = pytest.mark.django_db
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
    assert {each.key: each.value.string_value for each in resource.resource.attributes}[
        "service.name"
    ] == "fenceline"
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
