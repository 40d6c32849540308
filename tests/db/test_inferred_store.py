"""Proves what is saved of history from lists and markers, and that the log counts none of it again."""

import json
from dataclasses import replace

import pytest

from dashboard.models import Cluster, Recent, Tally, TopicTally, Transaction, TransitionRecord
from dashboard.runtime.leases import Lease
from dashboard.transactions import reconcile_store
from dashboard.transactions.sql import recent_rings
from fenceline.facts import NOT_FROM_LOG, NOT_REPORTED, Tombstone, TopicPartition, TransactionState
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.marker_history import EndMarker
from fenceline.kafka.reconcile import Correction, NotDescribed, Obstacle, mirror_row
from fenceline.kafka.transactional_ids import key_of
from tests.db.conftest import NOW_MS
from tests.db.test_reconcile_store import known_row, reconciliation_of, record, save, states
from tests.db.test_transaction_store import batch_of
from tests.db.test_transaction_store import save as read

pytestmark = pytest.mark.sql

WHERE = TopicPartition("orders", 0)


def observe(
    reconciler: Lease, name: str, state: TransactionState, *markers: EndMarker, epoch: int = 0
) -> None:
    """Save a report of an id after the one before, with markers of its producer in between."""
    ours = reconcile_store.ReconciledRows(reconciler).known_rows([name]).get(name)
    change = Correction(record(name, state, epoch), ours)
    assert save(reconciler, reconciliation_of(change, alone=True, markers={7: markers})) == 1


def kinds(name: str) -> list[str]:
    transitions = [
        each
        for ring in recent_rings(Cluster.objects.get().pk, [key_of(name.encode())]).values()
        for each in transition_ring.unpack_ring(ring.packed, NOT_FROM_LOG)
    ]
    return [f"{each.kind} {each.confidence}" for each in reversed(transitions)]


def total(kind: str) -> int:
    rows = Tally.objects.filter(application=Tally.EVERY, span_s=60)
    return sum(json.loads(row.counts).get(kind, 0) for row in rows)


def test_an_end_is_kept_with_its_kind_confidence_and_counts(reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.ONGOING)
    observe(reconciler, "a", TransactionState.COMPLETE_COMMIT)
    assert kinds("a") == ["baseline certain", "commit certain"]
    assert total("commit") == 1
    tally = TopicTally.objects.filter(span_s=900).get()
    assert (tally.topic, tally.commits, tally.aborts) == ("orders", 1, 0)
    assert not TransitionRecord.objects.exists(), "everyday kinds have no rows of their own"
    assert states() == {"CompleteCommit": 1}


def test_a_report_without_news_keeps_the_protocol_version(reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.PREPARE_COMMIT)
    left = record("a", TransactionState.PREPARE_COMMIT)._replace(partitions=())
    assert save(reconciler, reconciliation_of(Correction(left, known_row(reconciler, "a")), alone=True))
    assert Transaction.objects.get().client_version == NOT_REPORTED


def test_an_abort_has_a_row_of_its_own_that_names_no_place_in_the_log(reconciler: Lease) -> None:
    for name in "a", "b":
        observe(reconciler, name, TransactionState.ONGOING)
    for name in "a", "b":
        observe(reconciler, name, TransactionState.COMPLETE_ABORT)
    rows = TransitionRecord.objects.order_by("transactional_id")
    expected = [("a", "client_abort", "probable"), ("b", "client_abort", "probable")]
    assert [(row.transactional_id, row.kind, row.confidence) for row in rows] == expected
    assert {row.log_partition for row in rows} == {NOT_FROM_LOG}
    assert len({row.log_offset for row in rows}) == 2
    assert json.loads(rows[0].partitions) == [["orders", [0, 2]]]


def test_a_marker_tells_how_a_transaction_ended_that_is_over_in_the_next_report(reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.ONGOING)
    marker = EndMarker(WHERE, 5, 7, 0, False, NOW_MS)
    observe(reconciler, "a", TransactionState.EMPTY, marker, epoch=1)
    assert kinds("a") == ["baseline certain", "client_abort probable", "reinit probable"]
    assert (total("client_abort"), total("reinit")) == (1, 1)


def test_without_a_marker_no_end_is_counted(reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.ONGOING)
    observe(reconciler, "a", TransactionState.EMPTY, epoch=1)
    assert kinds("a") == ["baseline certain", "reinit ambiguous"]
    assert (total("commit"), total("client_abort"), total("abort")) == (0, 0, 0)


def test_a_forgotten_id_keeps_its_last_transitions_and_a_hidden_one_is_not_told_as_forgotten(
    reconciler: Lease,
) -> None:
    for name in "a", "b":
        observe(reconciler, name, TransactionState.COMPLETE_COMMIT)
    gone = Correction(Tombstone("a"), known_row(reconciler, "a"))
    obstacle = NotDescribed(Obstacle.FORBIDDEN, "no DESCRIBE")
    hidden = mirror_row("b", known_row(reconciler, "b"), obstacle, NOW_MS)
    assert hidden is not None
    save(reconciler, reconciliation_of(gone, hidden, alone=True))
    assert not Transaction.objects.exists()
    assert (kinds("a"), kinds("b")) == (["baseline certain", "expiry probable"], ["baseline certain"])
    assert Recent.objects.get(key=key_of(b"a")).expired_ms == NOW_MS


def test_corrections_of_a_log_that_is_read_infer_nothing(tail: Lease, reconciler: Lease) -> None:
    read(tail, batch_of(record("a")))
    correction = Correction(record("a", TransactionState.COMPLETE_ABORT), known_row(reconciler, "a"))
    save(reconciler, reconciliation_of(correction))
    assert kinds("a") == ["baseline certain"]
    assert not TransitionRecord.objects.exists()


def test_the_log_counts_what_was_before_the_first_inference(tail: Lease, reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.ONGOING)
    observe(reconciler, "a", TransactionState.COMPLETE_ABORT)
    begun, aborted = (
        record("a", state) for state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
    )
    old_ms = NOW_MS - 86_400_000
    old = [fact._replace(started_ms=old_ms, updated_ms=old_ms + 5) for fact in (begun, aborted)]
    idle = aborted._replace(state=TransactionState.COMPLETE_ABORT, updated_ms=old_ms + 9)
    read(tail, replace(batch_of(*old, idle, begun, aborted), cold=True))
    assert total("client_abort") == 2


def test_the_log_does_not_count_again_what_was_inferred(tail: Lease, reconciler: Lease) -> None:
    observe(reconciler, "a", TransactionState.ONGOING)
    observe(reconciler, "a", TransactionState.COMPLETE_ABORT)
    before = total("client_abort")
    facts = [record("a", state) for state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)]
    read(tail, replace(batch_of(*facts), cold=True))
    assert (total("client_abort"), before) == (1, 1)
    assert TransitionRecord.objects.count() == 1
    idle = facts[0]._replace(state=TransactionState.COMPLETE_ABORT)
    opened = facts[0]._replace(started_ms=NOW_MS + 60_000, updated_ms=NOW_MS + 60_000)
    ended = facts[1]._replace(started_ms=NOW_MS + 60_000, updated_ms=NOW_MS + 120_000)
    read(tail, batch_of(idle, opened, ended, previous=10, end=20))
    assert total("client_abort") == 2
