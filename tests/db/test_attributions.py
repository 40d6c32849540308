"""Proves that transitions caused by actions are joined with them by producer id and epoch, and that it makes
no difference whether a record is read before the action's result is stored, after it, or between: the same
transitions, last transitions and counters; and that transitions of others are never attributed."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import transaction

from dashboard.evaluation.baselines import ClusterBaselines
from dashboard.history import queries as history_queries
from dashboard.models import Action, Tally, Transaction, TransitionRecord
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import cluster_transaction
from dashboard.transactions import attributions, store
from dashboard.transactions.attributions import WrittenRecord
from fenceline.facts import (
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.fold import transition_ring
from fenceline.limits import Limits
from tests.cases import cases
from tests.db.conftest import NOW_MS
from tests.db.factories import prod
from tests.factories import tail_batch

pytestmark = pytest.mark.sql

NAME, PRODUCER, EPOCH, TIMEOUT_MS = "payments-7", 4_000, 3, 777_000
PARTITIONS = (TopicPartitions("orders", (0,)),)
#: Gap between the abort's completion and the initialisation, transaction version, timeout: each way to read a
#: fence without its action. tests/unit/test_transition_causes.py has them all.
FENCES = [
    (100, 0, TIMEOUT_MS),
    (100, 0, 30_000),
    (5, 2, TIMEOUT_MS),
    (100, 2, 50_000),
    (20_000, 2, TIMEOUT_MS),
]
#: How many records are read before the action's result is stored: none, some, all; the pure tests have each.
BETWEEN = (0, 3, 5)


def record(
    state: TransactionState,
    at_ms: int,
    epoch: int = EPOCH,
    *,
    version: int = 0,
    producer_id: int = PRODUCER,
    timeout_ms: int = TIMEOUT_MS,
) -> TransactionRecord:
    begun = None if state is TransactionState.EMPTY else NOW_MS - 60_000
    partitions = {
        TransactionState.EMPTY: None,
        TransactionState.COMPLETE_ABORT: (),
        TransactionState.COMPLETE_COMMIT: (),
    }.get(state, PARTITIONS)
    return TransactionRecord(NAME, state, producer_id, epoch, timeout_ms, partitions, at_ms, begun, version)


def opened(version: int = 0, timeout_ms: int = TIMEOUT_MS) -> list[TransactionRecord]:
    return [
        record(TransactionState.EMPTY, NOW_MS - 61_000, version=version, timeout_ms=timeout_ms),
        record(TransactionState.ONGOING, NOW_MS - 60_000, version=version, timeout_ms=timeout_ms),
    ]


def fenced(gap_ms: int, version: int = 0, timeout_ms: int = TIMEOUT_MS) -> list[TransactionRecord]:
    """The records of a fence: abort and completion at the next epoch, initialised at the one after."""
    some: dict[str, Any] = {"version": version, "timeout_ms": timeout_ms}
    return [
        *opened(version, timeout_ms),
        record(TransactionState.PREPARE_ABORT, NOW_MS, EPOCH + 1, **some),
        record(TransactionState.COMPLETE_ABORT, NOW_MS + 10, EPOCH + 1, **some),
        record(TransactionState.EMPTY, NOW_MS + 10 + gap_ms, EPOCH + 2, **some),
    ]


FENCE = (
    WrittenRecord(NAME, PRODUCER, EPOCH + 1, TransactionState.PREPARE_ABORT.value, fence=True),
    WrittenRecord(NAME, PRODUCER, EPOCH + 2, TransactionState.EMPTY.value, fence=True),
)


def store_result(written: Sequence[WrittenRecord] = FENCE) -> Action:
    row = Action.objects.create(
        cluster=prod(), act="fence", state="executing", plan={}, digest="d", subjects=f"transaction:{NAME}",
        planned_by="olga", executed_by="olga", expires_ms=NOW_MS,
    )  # fmt: skip
    with cluster_transaction("prod", row.cluster_id) as write:
        attributions.save_attributions(row, written, rev=write.next_rev(), now_ms=NOW_MS + 1_000)
    return row


def read(lease: Lease, records: Sequence[TransactionRecord], start: int) -> None:
    previous = start if start else None
    look = tail_batch(3, *records, previous=previous, end=start + len(records), seen_through_ms=NOW_MS)
    store.save_batch(lease, look, topic_id="topic-1", rate=1.0, now_ms=NOW_MS)


def store_result_between(
    lease: Lease, records: Sequence[TransactionRecord], at: int, written: Sequence[WrittenRecord]
) -> Action:
    """Let the action's result be stored when `at` of the records are read."""
    if at:
        read(lease, records[:at], 0)
    row = store_result(written)
    if records[at:]:
        read(lease, records[at:], at)
    return row


def unattributed(lease: Lease, records: Sequence[TransactionRecord]) -> dict[str, Any]:
    """What is kept of these records where no action is known."""
    with transaction.atomic():
        read(lease, records, 0)
        found = kept_history()
        transaction.set_rollback(True)
    return found


def kept_history() -> dict[str, Any]:
    """What is saved of the id, except revisions and former verdicts."""
    columns = ("kind", "confidence", "reason", "at_ms", "producer_epoch", "open_ms", "completed_ms", "gap_ms")
    rows = TransitionRecord.objects.order_by("log_offset")
    counts: dict[str, int] = {}
    for tally in Tally.objects.filter(span_s=60, application="payments"):
        for kind, n in json.loads(tally.counts).items():
            counts[kind] = counts.get(kind, 0) + n
    return {
        "rows": [(*values, action is not None) for *values, action in rows.values_list(*columns, "action")],
        "partitions": list(rows.values_list("partitions", flat=True)),
        "recent": transition_ring.unpack_ring(bytes(Transaction.objects.get().recent), 3),
        "counts": {kind: n for kind, n in counts.items() if n},
    }


@pytest.mark.parametrize(("gap_ms", "version", "timeout_ms"), FENCES)
@pytest.mark.parametrize("at", BETWEEN)
def test_a_fence_is_attributed_whenever_its_result_is_stored(
    tail: Lease, gap_ms: int, version: int, timeout_ms: int, at: int
) -> None:
    row = store_result_between(tail, fenced(gap_ms, version, timeout_ms), at, FENCE)
    (fence,) = TransitionRecord.objects.exclude(kind="init")
    assert (fence.kind, fence.confidence, fence.action) == ("admin_fence", "certain", row)
    assert fence.log_offset == 2
    assert (fence.completed_ms, fence.gap_ms) == (NOW_MS + 10, gap_ms)
    assert json.loads(fence.partitions) == [["orders", [0]]]
    assert history_queries.verdict_evidence(fence).startswith(f"Fenced by olga, action {row.pk}")
    found = kept_history()
    assert found["counts"] == {"begin": 1, "admin_fence": 1}
    expected = [TransitionKind.ADMIN_FENCE, TransitionKind.BEGIN, TransitionKind.BASELINE]
    assert [each.kind for each in found["recent"]] == expected
    assert attributions.of_transitions("prod", bytes(fence.key), found["recent"]) == [row, None, None]
    lately = ClusterBaselines(prod().pk).recent_activity(now_ms=NOW_MS + 60_000, limits=Limits(), clocks={})
    assert list(lately.takeovers) == []


def test_a_verdict_that_is_attributed_later_is_a_revision(tail: Lease) -> None:
    read(tail, fenced(100), 0)
    (before,) = TransitionRecord.objects.all()
    assert (before.kind, before.action) == ("takeover", None)
    store_result()
    (after,) = TransitionRecord.objects.all()
    assert (after.kind, after.revised_from, after.revised_ms) == ("admin_fence", "takeover", NOW_MS + 1_000)
    assert after.rev > before.rev
    assert after.rev == prod().rev
    assert [
        row.pk
        for row in history_queries.transitions_since(
            history_queries.HistoryCriteria("prod"), since_rev=before.rev, after=0, limit=9
        ).items
    ] == [after.pk]


def test_a_failure_after_the_result_leaves_no_change(tail: Lease) -> None:
    read(tail, fenced(100), 0)
    before = kept_history()

    class Failed(Exception):
        pass

    def fail() -> None:
        with transaction.atomic():
            store_result()
            raise Failed

    with pytest.raises(Failed):
        fail()
    assert kept_history() == before


def test_a_tail_that_aggregated_before_the_result_is_stored_aggregates_again(
    tail: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tail, fenced(100)[:2], 0)
    save, stored = store._save, []

    def between(*given: Any, **named: Any) -> int | None:
        if not stored:
            stored.append(store_result())
        return save(*given, **named)

    monkeypatch.setattr(store, "_save", between)
    read(tail, fenced(100)[2:], 2)
    (fence,) = TransitionRecord.objects.all()
    assert (fence.kind, fence.action) == ("admin_fence", stored[0])
    assert kept_history()["counts"] == {"begin": 1, "admin_fence": 1}


@pytest.mark.parametrize("at", BETWEEN)
@cases(
    (1, [FENCE[1]._replace(producer_id=PRODUCER + 1), FENCE[0]._replace(producer_id=PRODUCER + 1)]),
    (2, [FENCE[1]._replace(producer_epoch=EPOCH + 3), FENCE[0]._replace(producer_epoch=EPOCH + 2)]),
    (3, [FENCE[1]._replace(transactional_id="payments-8"), FENCE[0]._replace(transactional_id="payments-8")]),
    (4, [FENCE[0]._replace(state=TransactionState.PREPARE_COMMIT.value, fence=False)]),
)
def test_transitions_of_others_are_not_attributed(
    tail: Lease, at: int, number: int, written: list[WrittenRecord]
) -> None:
    expected = unattributed(tail, fenced(100))
    store_result_between(tail, fenced(100), at, written)
    assert kept_history() == expected, number
    assert not TransitionRecord.objects.exclude(action=None).exists(), number
    assert [row.kind for row in TransitionRecord.objects.all()] == ["takeover"], number


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("at", BETWEEN)
def test_a_takeover_after_a_fence_is_not_attributed(tail: Lease, at: int, version: int) -> None:
    back = record(TransactionState.EMPTY, NOW_MS + 60_000, EPOCH + 3, version=version)
    row = store_result_between(tail, [*fenced(5, version), back], at, FENCE)
    found = TransitionRecord.objects.order_by("log_offset")
    assert [(each.kind, each.action) for each in found] == [("admin_fence", row), ("reinit", None)]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("at", BETWEEN)
def test_a_clients_abort_before_a_fence_is_not_attributed(tail: Lease, at: int, version: int) -> None:
    """The transaction ended between the last description and the request: only the initialisation is ours."""
    raised = 1 if version == 2 else 0
    records = [
        *opened(version),
        record(TransactionState.PREPARE_ABORT, NOW_MS, EPOCH + raised, version=version),
        record(TransactionState.COMPLETE_ABORT, NOW_MS + 10, EPOCH + raised, version=version),
        record(TransactionState.EMPTY, NOW_MS + 310, EPOCH + raised + 1, version=version),
    ]
    ours = WrittenRecord(NAME, PRODUCER, EPOCH + raised + 1, TransactionState.EMPTY.value, fence=True)
    row = store_result_between(tail, records, at, [ours])
    *aborts, fence = TransitionRecord.objects.order_by("log_offset")
    # Under version 2 the records do not show where the abort ends and the fence begins: one, probable.
    assert [(abort.kind, abort.action) for abort in aborts] == ([] if version else [("client_abort", None)])
    sure = "probable" if version else "certain"
    assert (fence.kind, fence.confidence, fence.action) == ("admin_fence", sure, row)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("at", BETWEEN)
def test_a_fence_at_the_last_epoch_continues_with_a_new_producer_id(
    tail: Lease, at: int, version: int
) -> None:
    records = [
        record(TransactionState.EMPTY, NOW_MS - 61_000, 32_765, version=version),
        record(TransactionState.ONGOING, NOW_MS - 60_000, 32_765, version=version),
        record(TransactionState.PREPARE_ABORT, NOW_MS, 32_766, version=version),
        record(TransactionState.COMPLETE_ABORT, NOW_MS + 10, 32_766, version=version),
        record(TransactionState.EMPTY, NOW_MS + 110, 0, version=version, producer_id=PRODUCER + 1),
    ]
    written = [
        FENCE[0]._replace(producer_epoch=32_766),
        FENCE[1]._replace(producer_id=PRODUCER + 1, producer_epoch=0),
    ]
    row = store_result_between(tail, records, at, written)
    fence, rotation = TransitionRecord.objects.order_by("log_offset")
    assert (fence.kind, fence.confidence, fence.action, fence.gap_ms) == ("admin_fence", "certain", row, None)
    assert (rotation.kind, rotation.reason) == ("rotation", TransitionReason.EPOCH_USED_UP.value)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("at", BETWEEN)
def test_an_abort_by_an_end_transaction_action_is_attributed(tail: Lease, at: int, version: int) -> None:
    """EndTxn of version 4 keeps the epoch, whatever version the producer uses."""
    records = [
        *opened(version),
        record(TransactionState.PREPARE_ABORT, NOW_MS, EPOCH, version=0),
        record(TransactionState.COMPLETE_ABORT, NOW_MS + 10, EPOCH, version=0),
    ]
    written = WrittenRecord(NAME, PRODUCER, EPOCH, TransactionState.PREPARE_ABORT.value, fence=False)
    row = store_result_between(tail, records, at, [written])
    (abort,) = TransitionRecord.objects.all()
    # The producer's own EndTxn just before would leave the same record.
    assert (abort.kind, abort.confidence, abort.action) == ("admin_abort", "probable", row)
    assert history_queries.verdict_evidence(abort).startswith(f"Aborted by olga, action {row.pk}: ")
    assert kept_history()["counts"] == {"begin": 1, "admin_abort": 1}


@pytest.mark.parametrize("at", BETWEEN)
def test_a_commit_by_an_end_transaction_action_is_attributed(tail: Lease, at: int) -> None:
    records = [
        *opened(),
        record(TransactionState.PREPARE_COMMIT, NOW_MS, EPOCH),
        record(TransactionState.COMPLETE_COMMIT, NOW_MS + 10, EPOCH),
    ]
    written = WrittenRecord(NAME, PRODUCER, EPOCH, TransactionState.PREPARE_COMMIT.value, fence=False)
    row = store_result_between(tail, records, at, [written])
    commit = kept_history()["recent"][0]
    assert (commit.kind, commit.reason, commit.completed_ms) == (
        TransitionKind.COMMIT, TransitionReason.COMMITTED_BY_ACTION, NOW_MS + 10,
    )  # fmt: skip
    key = bytes(Transaction.objects.get().key)
    assert attributions.of_transitions("prod", key, [commit]) == [row]
    assert kept_history()["counts"] == {"begin": 1, "commit": 1}
