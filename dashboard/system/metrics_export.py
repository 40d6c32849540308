"""Push the families of `/metrics` by OTLP over HTTP, if no Prometheus scrapes them."""

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby, pairwise

from django.conf import settings
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from dashboard.system.metrics import Metrics, own_version

#: The time limit of an export, including its retries.
_TIMEOUT_S = 10
_NS_OF_MS = 1_000_000

log = logging.getLogger(__name__)


def export_families(now_ms: int) -> None:
    """Push every family as of an instant to the configured endpoint; a failure is logged."""
    sent = _exporter(settings.OTLP_ENDPOINT).export(metrics_data(Metrics(now_ms).collect(), now_ms))
    if sent is not MetricExportResult.SUCCESS:
        log.warning("metrics were not taken at %s: it is away or refuses them", settings.OTLP_ENDPOINT)


@cache
def _exporter(endpoint: str) -> OTLPMetricExporter:
    """Make the exporter once; it reads `OTEL_EXPORTER_OTLP_HEADERS` and other variables itself."""
    return OTLPMetricExporter(endpoint, timeout=_TIMEOUT_S)


def metrics_data(families: Iterable[Family], now_ms: int) -> MetricsData:
    """Return Prometheus' families in OTLP's form, with their names."""
    metrics = [metric for family in families if (metric := _metric(family, now_ms * _NS_OF_MS))]
    scope = ScopeMetrics(InstrumentationScope("fenceline", own_version()), metrics, "")
    resource = Resource.create({"service.name": "fenceline", "service.version": own_version()})
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, at_ns: int) -> Metric | None:
    data: Gauge | Sum | Histogram
    if family.type == "histogram":
        data = Histogram(_histograms(family.samples, at_ns), AggregationTemporality.CUMULATIVE)
    elif family.type == "counter":
        data = Sum(_numbers(family.samples, at_ns), AggregationTemporality.CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_numbers(family.samples, at_ns))
    return Metric(family.name, family.documentation, "", data) if data.data_points else None


def _numbers(samples: Sequence[Sample], at_ns: int) -> Sequence[NumberDataPoint]:
    return [NumberDataPoint(sample.labels, 0, at_ns, float(sample.value)) for sample in samples]


def _histograms(samples: Sequence[Sample], at_ns: int) -> Sequence[HistogramDataPoint]:
    """Return a point for each set of labels: OTLP's buckets are not cumulative, and no sum is stored here."""
    buckets = (sample for sample in samples if sample.name.endswith("_bucket"))
    points = []
    for labels, of in groupby(buckets, lambda sample: {k: v for k, v in sample.labels.items() if k != "le"}):
        upto = {sample.labels["le"]: int(sample.value) for sample in of}
        counts = [after - before for before, after in pairwise([0, *upto.values()])]
        bounds = [float(bound) for bound in upto if bound != "+Inf"]
        points.append(HistogramDataPoint(labels, 0, at_ns, upto["+Inf"], None, counts, bounds, None, None))  # type: ignore[arg-type]
    return points
