"""Clusters, collectors and gaps for pages to show, and the values that all factories share."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.db.models import F

from dashboard.config import Config
from dashboard.models import Cluster, Collector, GapRecord, Position
from fenceline.owners import Owner

#: Ids that break pages which do not escape.
HOSTILE_IDS = (
    b"<script>alert(1)</script>",
    b"\"quoted\" & 'quoted'",
    b"new\nline\x00nul\x1b[31m",
    "\u202egnp.exe \u05e9\u05dc\u05d5\u05dd".encode(),
    b"a/b/../c?d=e#f%2Fg",
    b"..",
    b".",
    b"~" + b"0" * 64,
    b"back\\slash",
    b"\xff\xfe not UTF-8",
    b"{{ 7|add:7 }}{% csrf_token %}",
)
LONG_ID = b"long-" + b"x" * 32_000


def now_ms() -> int:
    """Return the present, in milliseconds."""
    return time.time_ns() // 1_000_000


def cluster(name: str = "prod") -> Cluster:
    """Return a configured cluster."""
    return Cluster.objects.get_or_create(name=name, defaults={"rev": 1})[0]


def watched_cluster(name: str = "prod") -> Cluster:
    """Return a configured cluster all of whose collectors are up to date."""
    of = cluster(name)
    tail_collectors(of)
    collectors(of)
    return of


def raise_revision(of: Cluster) -> int:
    """Let the cluster's next revision begin, as each write of a collector does; return it."""
    Cluster.objects.filter(pk=of.pk).update(rev=F("rev") + 1)
    of.refresh_from_db(fields=["rev"])
    return of.rev


def collector(of: Cluster, name: str = "transaction_state", **fields: object) -> Collector:
    """Return a collector that is alive and up to date, however slow the host is, but for `fields`."""
    row = _unsaved_collector(of, name, **fields)
    row.save()
    return row


def _unsaved_collector(of: Cluster, name: str, **fields: object) -> Collector:
    now = datetime.now(UTC)
    defaults: dict[str, object] = {
        "token": 7,
        "holder": "4017-7f21c0",
        "expires_at": now + timedelta(hours=1),
        "seen_through_ms": now_ms() + 600_000,
        "behind": 0,
        "records": 1_204_311,
        "rate": 512.4,
        "since_ms": now_ms() - 3_600_000,
    }
    return Collector(cluster=of, name=name, **(defaults | fields))


#: Collectors of nouns, each called like what it reads or does.
POLLERS = (
    "partitions", "groups", "recoveries", "checkpoints", "flink", "engines", "coordinators", "alerts",
    "actions",
)  # fmt: skip


def collectors(of: Cluster, *names: str) -> None:
    """Make some collectors, or all of POLLERS, up to date, unless they exist."""
    known = set(of.collector_set.values_list("name", flat=True))
    _make_pollers(of, *(name for name in names or POLLERS if name not in known))


def _make_pollers(of: Cluster, *names: str) -> None:
    Collector.objects.bulk_create(
        _unsaved_collector(of, name, behind=None, records=0, rate=0) for name in names
    )


def partition_collectors(of: Cluster) -> None:
    """Make the collectors of partitions, groups and recoveries."""
    collectors(of, "partitions", "groups", "recoveries")


def tail_collectors(of: Cluster) -> None:
    """Make the tail's collector and the evaluator's, both up to date."""
    collector(of)
    _make_pollers(of, "judge")
    Position.objects.bulk_create(
        Position(
            cluster=of,
            topic="__transaction_state",
            partition=partition,
            next_offset=24_000 + partition * 7,
            end_offset=24_000 + partition * 7,
            topic_id="Zr8RkY4nQ0m1w2p3c4v5bg",
        )
        for partition in range(50)
    )


def gap(of: Cluster, **fields: object) -> GapRecord:
    """Return an open gap of the tail."""
    defaults: dict[str, object] = {
        "source": "transaction_state",
        "scope": "cluster",
        "since_ms": now_ms() - 95_000,
        "reason": "broker 127.0.0.1:9092: connection refused. Is it running, and is bootstrap.servers right?",
    }
    return GapRecord.objects.create(cluster=of, **(defaults | fields))


MINUTE_MS = 60_000


def owner(match: str, *, runbook: str = "") -> Owner:
    """Return an owner called Payments."""
    return Owner(match, "Payments", "#payments-oncall", runbook)


def config_with_owners(config: Config, *owners: Owner) -> Config:
    """Return a configuration with owners."""
    return replace(config, owners=owners)
