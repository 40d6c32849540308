"""How a streaming query becomes known: the exact lines for a configuration and for a driver."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.http import HttpRequest

from dashboard.web import page_context


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
