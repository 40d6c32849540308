"""What Fenceline itself sees and does: clusters, collectors, leases, positions, gaps, versions."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import groupby
from typing import Any

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse

from dashboard.models import Collector, GapRecord, Position
from dashboard.runtime import visibility
from dashboard.runtime.collector_names import RECONCILE
from dashboard.system import access
from dashboard.system.metrics import own_version
from dashboard.web import action_buttons, page_context
from dashboard.web.pages.overview import collector_states
from dashboard.web.per_request import now_ms
from dashboard.web.rendering import render_page, signed_in
from fenceline.kafka.reconcile import format_agreement

#: Libraries whose version decides how brokers, pages or jobs behave.
_LIBRARIES = (
    "django",
    "channels",
    "celery",
    "redis",
    "uvicorn",
    "confluent-kafka",
    "kafka-python",
    "pyspark",
)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far one internal topic of a cluster was read."""

    cluster: str
    name: str
    partitions: Sequence[Position]

    @property
    def records_behind(self) -> int:
        """Return the records between the positions and the end, as far as is known."""
        return sum(max(0, row.end_offset - row.next_offset) for row in self.partitions)


@dataclass(frozen=True, slots=True)
class ReconciliationCheck:
    """How far one cluster's rows agree with its coordinators' lists, and what polling costs it."""

    cluster: str
    words: str
    compared: int | None
    corrected: int | None
    hidden: int | None
    requests_per_s: float
    broker_ms_per_s: float
    unseen: Sequence[str]


@signed_in
def system_page(request: HttpRequest) -> HttpResponse:
    """Show what is watched, who watches it, and what could not be seen."""
    return render_page(request, "system/page", lambda: _read(request), depends_on=collector_states(request))


def _read(request: HttpRequest) -> Mapping[str, Any]:
    frame = page_context.chrome_of(request)
    names = [frame.cluster] if frame.cluster else [row.name for row in frame.clusters]
    shown = settings.FENCELINE.clusters
    return {
        "configured": [
            (name, shown[name].redacted_properties() if name in shown else None) for name in names
        ],
        "config_path": settings.FENCELINE.path,
        "limits": settings.FENCELINE.limits.as_mapping(),
        "retention": settings.FENCELINE.retention.as_mapping(),
        "checks": list(_checks(names, frame.freshness.collectors, now_ms(request))),
        "topics": _topics(visibility.topic_positions(frame.cluster)),
        "gaps": [*visibility.noun_visibility(frame.cluster).gaps, *_closed(frame.cluster)],
        "versions": component_versions(),
        "is_staff": bool(getattr(request.user, "is_staff", False)),
        "may_audit": not access.missing_role(action_buttons.request_actor(request), access.AUDIT),
    }


def _checks(
    names: Sequence[str], collectors: Sequence[Collector], now_ms: int
) -> Iterator[ReconciliationCheck]:
    """Yield, for each cluster, how its rows hold against its coordinators and what all collectors cost it."""
    for name in names:
        rows = [row for row in collectors if row.cluster.name == name]
        if rows:
            detail: dict[str, Any] = next((row.detail for row in rows if row.name == RECONCILE), {})
            requests, broker_ms = _cost(rows, now_ms // 60_000 - 1)
            yield ReconciliationCheck(
                name,
                _agreement(detail),
                detail.get("compared"),
                detail.get("corrected"),
                detail.get("hidden"),
                requests / 60,
                broker_ms / 60,
                detail.get("unseen", ()),
            )


def _agreement(detail: Mapping[str, Any]) -> str:
    """Return how far the tail and the coordinators agree, in words; from the full list where there is one."""
    if detail.get("alone"):
        return "known from lists alone"
    for which in ("", "open_"):
        if detail.get(f"{which}compared"):
            return f"agree: {format_agreement(detail[f'{which}agreed'], detail[f'{which}compared'])}"
    return "nothing to compare yet" if detail else "not asked"


def _cost(rows: Sequence[Collector], minute: int) -> tuple[int, int]:
    """Return the requests, and the milliseconds of waiting for them, of all collectors in one minute."""
    found = [cost for row in rows for cost in row.costs if cost[0] == minute]
    return sum(cost[1] for cost in found), sum(cost[2] for cost in found)


def _closed(cluster: str) -> Sequence[GapRecord]:
    return [gap for gap in visibility.gaps_closed() if not cluster or gap.cluster.name == cluster]


def _topics(rows: Sequence[Position]) -> Sequence[TopicProgress]:
    grouped = groupby(rows, key=lambda row: (row.cluster.name, row.topic))
    return [TopicProgress(cluster, topic, list(positions)) for (cluster, topic), positions in grouped]


@cache
def component_versions() -> Sequence[tuple[str, str]]:
    """Return name and version of Fenceline, of what it runs on, and of the libraries that decide its ways."""
    found = [("Fenceline", own_version()), ("Python", platform.python_version()), _database()]
    return [*found, *((name, _version(name)) for name in _LIBRARIES)]


def _database() -> tuple[str, str]:
    if connection.vendor == "sqlite":
        return "SQLite", sqlite3.sqlite_version
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return "PostgreSQL", str(cursor.fetchone()[0])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
