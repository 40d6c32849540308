"""How a streaming query becomes known: the exact lines for a configuration and for a driver."""

from collections.abc import Mapping

from django.conf import settings
from django.http import HttpRequest

from dashboard.web import page_context
from dashboard.web.per_request import now_ms


def attach_lines(request: HttpRequest) -> Mapping[str, str]:
    """Return the exact lines that make a query known: one for its driver, two for the configuration."""
    frame = page_context.chrome_of(request)
    cluster = frame.cluster or (frame.clusters[0].name if frame.clusters else "NAME")
    path = settings.FENCELINE.path
    return {
        "cluster": cluster,
        "url": f"{request.scheme}://{request.get_host()}",
        "root": "s3a://bucket/checkpoints",
        "file": path.name if path else "fenceline.toml",
    }


def first_query(request: HttpRequest) -> str:
    """Return when to expect the demo's first query; "" without one."""
    is_starting = now_ms(request) < settings.DEMO_SPARK_UNTIL_MS
    return "The demo's Spark query appears about 2 min after the start." if is_starting else ""
