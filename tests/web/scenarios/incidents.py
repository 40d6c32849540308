"""Incidents as an engineer on call finds them: a driver that died amid a batch, and a producer that hangs."""

from collections.abc import Sequence

from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.incidents import store
from dashboard.incidents.store import GroupingFacts
from dashboard.models import (
    Cluster,
    FindingRecord,
    Incident,
    IncidentEvent,
    IncidentFinding,
    Query,
    Transaction,
)
from fenceline.facts import TransactionState
from fenceline.incidents.impact import ImpactFigures
from fenceline.limits import Limits
from tests.web import factories
from tests.web.scenarios.queries import abandoned_query
from tests.web.scenarios.transactions import day_of_history

OUT = "orders_enriched"


def open_incidents(of: Cluster) -> Sequence[Incident]:
    """Make two open incidents, grouped as the evaluation groups them; the worse one first."""
    factories.tail_collectors(of)
    factories.collectors(of, "partitions", "groups", "recoveries", "checkpoints")
    day_of_history(of)
    query = abandoned_query(of)
    found = [*_crash(of, query), *_abandoned(of)]
    backlog = {f"partition:{OUT}-{number}": 4_501 for number in range(4)}
    figures = ImpactFigures(backlog | {"partition:stock-1": 240}, {f"query:{query.ident}": 18_004})
    snapshot = SnapshotReader(of.name).read(now_ms=factories.now_ms(), limits=Limits())
    facts = GroupingFacts(figures=figures, snapshot=snapshot)
    store.save_incidents(of.pk, found, facts, now_ms=factories.now_ms() - 45_000)
    rows = list(Incident.objects.filter(cluster=of).order_by("pk"))
    for row in rows:
        cause = FindingRecord.objects.get(rule=row.rule, subject=row.subject)
        Incident.objects.filter(pk=row.pk).update(opened_ms=cause.since_ms + 2_000)
        IncidentFinding.objects.filter(incident=row).update(since_ms=cause.since_ms + 2_000)
        IncidentEvent.objects.filter(incident=row).update(at_ms=cause.since_ms + 2_000)
    _notified(of, rows)
    return rows


def thirty_incidents(of: Cluster) -> None:
    """Make a cluster with a crash, a dozen queries, and thirty open incidents."""
    open_incidents(of)
    for number in range(12):
        factories.query(of, f"clicks_{number}", f"id-{number}")
    for number in range(28):
        transaction = factories.transaction(of, f"stock-sync-{number}", age_ms=700_000)
        name = f"transaction:{transaction.transactional_id}"
        factories.incident_of(of, factories.finding(of, name, summary=f"stock-sync-{number} is open"))


def _crash(of: Cluster, query: Query) -> Sequence[FindingRecord]:
    """Make what the rules find after kill -9 between prepared and committed."""
    now = factories.now_ms()
    opened = list(Transaction.objects.filter(cluster=of, state=TransactionState.ONGOING))
    ends_ms = min((row.started_ms or 0) + row.timeout_ms for row in opened)
    group = factories.group(of, "billing", "BLOCKED", blocked=3)
    found = [
        factories.finding(
            of,
            f"query:{query.ident}",
            "critical",
            rule="batch_prepared",
            since_ms=now - 47_000,
            deadline_ms=ends_ms,
            summary="Batch 1,204 of orders_enrich is prepared and the driver is gone",
            evidence="prepared at 12:15:20 UTC: 18,004 records, 3 transactions not committed; driver: failed",
            next_step="Start orders_enrich again: it commits the batch first of all (recoverAndCommit).",
            affected=[f"transaction:{row.transactional_id}" for row in opened],
        )
    ]
    for row in opened:
        number = int(row.partitions.rpartition("[")[2].partition("]")[0])
        where = f"partition:{OUT}-{number}"
        pin = factories.lso_blocker(
            of, OUT, number, age_ms=46_000, transactional_id=row.transactional_id, producer_id=row.producer_id
        )
        factories.blocked_offset(group, pin, age_ms=40_000)
        found += [
            factories.finding(
                of,
                f"transaction:{row.transactional_id}",
                since_ms=now - 48_000,
                affected=[where],
                deadline_ms=ends_ms,
                summary=f"{row.transactional_id} has been open and blocks {OUT}-{number}",
            ),
            factories.finding(
                of,
                where,
                rule="lso_pinned",
                since_ms=now - 46_000,
                affected=["group:billing"],
                summary=f"The LSO of {OUT}-{number} has been stuck at 48,211",
            ),
        ]
    places = [f"partition:{OUT}-{number}" for number in (1, 2, 3)]
    stalled = factories.finding(
        of,
        "group:billing",
        rule="group_stalled",
        since_ms=now - 40_000,
        affected=places,
        summary=f"billing is blocked at the LSO of {OUT}-1, {OUT}-2 and {OUT}-3",
    )
    return [*found, stalled]


def _abandoned(of: Cluster) -> Sequence[FindingRecord]:
    """Make a transaction whose producer has sent nothing for twelve minutes."""
    now = factories.now_ms()
    row = factories.transaction(
        of,
        "inventory-sync-3",
        age_ms=722_000,
        timeout_ms=806_000,
        partitions={"stock": [1, 4]},
        producer_id=7_117,
    )
    factories.lso_blocker(
        of,
        "stock",
        1,
        age_ms=720_000,
        transactional_id="inventory-sync-3",
        producer_id=7_117,
        seen_ms=now - 720_000,
    )
    return [
        factories.finding(
            of,
            "transaction:inventory-sync-3",
            since_ms=row.started_ms,
            affected=["partition:stock-1", "partition:stock-4"],
            deadline_ms=(row.started_ms or 0) + row.timeout_ms,
            summary="inventory-sync-3 has been open since 12:04:05 UTC and blocks stock-1 and stock-4",
        )
    ]


def _notified(of: Cluster, rows: Sequence[Incident]) -> None:
    """Make what people were sent, and did."""
    now = factories.now_ms()
    first = next(row for row in rows if row.rule == "batch_prepared")
    cause = FindingRecord.objects.get(rule=first.rule, subject=first.subject)
    ops = factories.channel("data-oncall")
    held = {"firing": [bytes(cause.fingerprint).hex()], "severities": ["critical"], "resolved": []}
    factories.delivery(ops, cluster=of, made_ms=now - 30_000, held=held)
    IncidentEvent.objects.create(incident=first, at_ms=now - 20_000, kind="acknowledged", actor="ada")
    Incident.objects.filter(pk=first.pk).update(
        acknowledged_ms=now - 20_000, acknowledged_by="ada", owner="Orders"
    )
