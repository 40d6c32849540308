"""How long the server takes for each page with 2,000,000 transactional ids, 20,000 partitions, 1,000 groups,
500 incidents and 30 days of series behind it.

On SQLite and on a PostgreSQL of our own, without a broker: rows are written as collectors would have.
As a process, in the environment of one database: `python -m benchmarks.scale`; it prints its figures.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import TYPE_CHECKING

from benchmarks.databases import measure_on_both, signed_in_client, time_ms
from benchmarks.reader import NAME

if TYPE_CHECKING:
    from django.test import Client

    from dashboard.models import Cluster

IDS, OPEN, APPLICATIONS = 2_000_000, 2_000, 100
INCIDENTS, OPEN_INCIDENTS, EFFECTS = 500, 50, 4
TRANSITIONS, DAYS = 100_000, 30
ROUNDS, AT_ONCE = 60, 20_000
DAY_MS = 86_400_000
LISTS = (
    "/", "/incidents", "/pipelines", "/transactions", "/partitions", "/groups", "/queries", "/events",
    "/actions", "/alerts", "/reports", "/system", "/rules", "/recoveries",
)  # fmt: skip
RANGES = (
    "/?last=24h", "/events?last=24h", "/events?last=30d", "/incidents?last=30d",
    "/timeline", "/timeline?last=24h", "/timeline?last=7d", "/timeline?last=30d",
)  # fmt: skip
DETAILS = (f"/partitions/{NAME}/t7/7", f"/groups/{NAME}/g7", f"/transactions/{NAME}/app-007-7")


def run() -> dict[str, object]:
    """Measure on both databases."""
    return measure_on_both("benchmarks.scale")


def main() -> None:
    """Measure in one database."""
    import django

    django.setup()
    from django.db import connection

    from dashboard.models import Cluster
    from dashboard.web.server.warm_up import warm_up

    _fill_fast()
    cluster = Cluster.objects.get(name=NAME)
    fills = (
        _fill_partitions_and_groups, _fill_collectors, _fill_ids, _fill_transitions, _fill_incidents,
    )  # fmt: skip
    for fill in fills:
        began = time.monotonic()
        fill(cluster)
        print(f"{fill.__name__}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    _analyze()
    connection.close()
    warm_up()
    print(json.dumps(_page_times(signed_in_client("operator"))))


def _fill_fast() -> None:
    """Let SQLite keep the indexes in memory while they are filled in random order."""
    from django.db import connection

    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA cache_size = -2000000")
            cursor.execute("PRAGMA synchronous = OFF")


def _fill_collectors(cluster: Cluster) -> None:
    from tests.web import factories, scenarios

    factories.tail_collectors(cluster)
    scenarios.busy_queries(cluster)
    cluster.collector_set.update(seen_through_ms=factories.now_ms() + 3_600_000)


def _fill_ids(cluster: Cluster) -> None:
    """Ids of a hundred applications; every thousandth is open."""
    from dashboard.models import StateCount, Transaction
    from dashboard.runtime import loop

    now_ms = loop.now_ms()

    def row(number: int) -> Transaction:
        name = f"app-{number % APPLICATIONS:03}-{number}"
        is_open = number % (IDS // OPEN) == 0
        return Transaction(
            cluster=cluster, key=hashlib.sha256(name.encode()).digest(), transactional_id=name,
            application=name.rpartition("-")[0], state="Ongoing" if is_open else "CompleteCommit",
            producer_id=1_000_000 + number, producer_epoch=3, timeout_ms=60_000,
            started_ms=now_ms - number % 60_000 if is_open else None, updated_ms=now_ms - number,
            partitions=f'[["t{number % 200}", [{number % 100}]]]', partition_count=1, client_version=2,
            log_partition=number % 50, log_offset=number, rev=1,
        )  # fmt: skip

    for first in range(0, IDS, AT_ONCE):
        Transaction.objects.bulk_create(map(row, range(first, first + AT_ONCE)))
    for state, number in (("Ongoing", OPEN), ("CompleteCommit", IDS - OPEN)):
        StateCount.objects.update_or_create(cluster=cluster, shard=0, state=state, defaults={"n": number})


def _fill_transitions(cluster: Cluster) -> None:
    """Notable transitions of 30 days, and the tallies of all applications together by the hour and minute."""
    from dashboard.models import Tally, TransitionRecord
    from dashboard.runtime import loop

    now_ms, kinds = loop.now_ms(), ("takeover", "timeout", "client_abort", "reinit")

    def row(number: int) -> TransitionRecord:
        name = f"app-{number % APPLICATIONS:03}-{number}"
        return TransitionRecord(
            cluster=cluster, rev=1, key=hashlib.sha256(name.encode()).digest(), transactional_id=name,
            application=name.rpartition("-")[0], kind=kinds[number % len(kinds)], confidence="certain",
            reason="client_went_on", at_ms=now_ms - number * DAYS * DAY_MS // TRANSITIONS,
            producer_id=1_000_000 + number, producer_epoch=4, previous_epoch=3, timeout_ms=60_000,
            log_partition=number % 50, log_offset=number, topic_id="t",
        )  # fmt: skip

    for first in range(0, TRANSITIONS, AT_ONCE):
        TransitionRecord.objects.bulk_create(map(row, range(first, first + AT_ONCE)))
    counts = json.dumps({"commit": 5_000, "takeover": 3})
    names = (Tally.EVERY, *(f"app-{number:03}" for number in range(APPLICATIONS)))
    spans = ((3_600, DAYS * 24), (60, 24 * 60))
    Tally.objects.bulk_create(
        (
            Tally(
                cluster=cluster, application=name, span_s=span_s, shard=0, counts=counts,
                start_ms=(now_ms // (span_s * 1_000) - back) * span_s * 1_000,
            )
            for name in names for span_s, number in spans for back in range(number)
        ),
        batch_size=AT_ONCE,
    )  # fmt: skip


def _fill_partitions_and_groups(cluster: Cluster) -> None:
    from benchmarks import series
    from dashboard.runtime import loop

    for saver in (series.partition_saver(), series.group_saver()):
        saver.save(1)
    series.empty_series()
    series.fill_series(loop.now_ms())


def _fill_incidents(cluster: Cluster) -> None:
    """Incidents of 30 days with their findings and events; a tenth of them is open."""
    from django.utils import timezone

    from dashboard.models import FindingRecord, Incident, IncidentEvent, IncidentFinding
    from tests.web import factories

    now_ms = factories.now_ms()
    for number in range(INCIDENTS):
        is_open = number < OPEN_INCIDENTS
        rows = [
            factories.finding(
                cluster, f"transaction:app-{number % 100:03}-{number * 1_000 + effect}", "warning"
            )
            for effect in range(1 + EFFECTS)
        ]
        incident = factories.incident_of(cluster, *rows)
        if is_open:
            continue
        opened_ms = now_ms - number * DAYS * DAY_MS // INCIDENTS
        keys = [row.pk for row in rows]
        FindingRecord.objects.filter(pk__in=keys).update(since_ms=opened_ms, closed_at=timezone.now())
        Incident.objects.filter(pk=incident.pk).update(opened_ms=opened_ms, closed_ms=opened_ms + 600_000)
        members = IncidentFinding.objects.filter(incident=incident)
        members.update(since_ms=opened_ms, until_ms=opened_ms + 600_000)
        IncidentEvent.objects.filter(incident=incident).update(at_ms=opened_ms)


def _analyze() -> None:
    """Let the database know its tables, as autovacuum and `PRAGMA optimize` do in time."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _page_times(client: Client) -> dict[str, object]:
    from dashboard.models import Incident, Query

    paths = [*LISTS, *RANGES, *DETAILS]
    paths.append(f"/incidents/{Incident.objects.filter(closed_ms=None).earliest('pk').pk}")
    paths.append(f"/queries/{NAME}/{Query.objects.earliest('pk').ident}")
    return dict(_timed(client, paths))


def _timed(client: Client, paths: list[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        times = sorted(time_ms(client, path) for _ in range(ROUNDS))
        yield f"{path}, ms", f"p95 {quantiles(times, n=20)[-1]:.0f}, median {times[len(times) // 2]:.0f}"


if __name__ == "__main__":
    main()
