"""Rows of transactional ids, recoveries, and what applications write to, for pages to show."""

import json

from django.db.models import F

from dashboard.models import Cluster, Recovery, StateCount, TopicTally, Transaction
from dashboard.transactions.topic_tallies import LONG_S, SHORT_S
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.kafka.applications import application_of
from fenceline.kafka.transactional_ids import key_of
from fenceline.series.histograms import bucket_of, pack_histogram
from tests.web.factories.clusters import now_ms


def transaction(
    of: Cluster,
    raw: bytes | str = b"orders-gateway-1",
    state: TransactionState = TransactionState.ONGOING,
    *,
    age_ms: int = 2_000,
    partitions: dict[str, list[int]] | None = None,
    **fields: object,
) -> Transaction:
    """Return a row of one transactional id that began `age_ms` ago."""
    name = raw.encode() if isinstance(raw, str) else raw
    named = {"orders": [0, 1]} if partitions is None else partitions
    begun = now_ms() - age_ms
    defaults: dict[str, object] = {
        "key": key_of(name),
        "transactional_id": text.escape_bytes(name),
        "application": application_of(text.escape_bytes(name)).application,
        "state": state.value,
        "producer_id": 2051,
        "producer_epoch": 17,
        "timeout_ms": 60_000,
        "started_ms": None if state is TransactionState.EMPTY else begun,
        "updated_ms": begun + min(age_ms, 40),
        "partitions": json.dumps(list(named.items())) if named else "",
        "partition_count": sum(map(len, named.values())),
        "client_version": 2,
        "log_partition": 7,
        "log_offset": 24_049,
        "rev": 1,
    }
    row = Transaction.objects.create(cluster=of, **(defaults | fields))
    state_count(of, row.state, 1)
    return row


def state_count(of: Cluster, state: str, by: int) -> None:
    """Keep the number of ids in a state, as a flush does."""
    if not StateCount.objects.filter(cluster=of, shard=0, state=state).update(n=F("n") + by):
        StateCount.objects.create(cluster=of, shard=0, state=state, n=by)


def recovery(of: Cluster, raw: bytes | str = b"payments-7", **fields: object) -> Recovery:
    """Return a recovery that is over, but for `fields`."""
    name = raw.encode() if isinstance(raw, str) else raw
    opened = now_ms() - 600_000
    number = Recovery.objects.count()
    defaults: dict[str, object] = {
        "application": application_of(text.escape_bytes(name)).application,
        "cause": "timeout",
        "confidence": "probable",
        "producer_id": 4017,
        "producer_epoch": 3,
        "topic_id": "Zr8RkY4nQ0m1w2p3c4v5bg",
        "log_partition": 7,
        "log_offset": 24_100 + number,
        "opened_ms": opened - number * 1_000,
        "begun_ms": opened - 60_900,
        "completed_ms": opened + 30,
        "released_ms": opened + 120,
        "resumed_ms": opened + 4_120,
        "resumed_by": text.escape_bytes(name),
        "closed_ms": opened + 4_120,
        "outcome": "resumed",
        "records_released": 1_770,
        "partitions": [["payments", [0, 1]]],
        "waited": [["billing", "payments", 0, 48_211, opened - 58_000, opened + 900]],
        "lost": [
            ["payments", 0, 48_211, 48_273, 63, True, ""],
            ["payments", 1, 7_000, 7_110, None, False, "the log was cut before it was read"],
            ["payments", 2, None, None, 0, True, ""],
        ],
        "lost_complete": True,
        "rev": 1,
    }
    return Recovery.objects.create(
        cluster=of, key=key_of(name), transactional_id=text.escape_bytes(name), **(defaults | fields)
    )


def topic_tally(
    of: Cluster,
    application: str,
    topic: str,
    commits: int = 60,
    *,
    partition: int = -1,
    unreadable_ms: int = 80,
    age_ms: int = 2_000,
) -> None:
    """Let an application's transactions have written to a topic, the last of them `age_ms` ago."""
    last_ms = now_ms() - age_ms
    times = pack_histogram({bucket_of(unreadable_ms): commits}) if commits else "{}"
    for span_s in (SHORT_S, LONG_S):
        TopicTally.objects.create(
            cluster=of,
            application=application,
            topic=topic,
            partition=partition,
            span_s=span_s,
            start_ms=last_ms - last_ms % (span_s * 1_000),
            shard=0,
            commits=commits,
            aborts=0,
            unreadable_times=times,
            last_ms=last_ms,
        )
