"""Proves that what the coordinators' lists show goes into a row only while it is the row that was compared,
that a record always takes precedence, and that the number of ids in each state is correct in any order."""

from collections import Counter

import pytest

from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import Cluster, Collector, GapRecord, PartitionRecord, Recent, StateCount, Transaction
from dashboard.runtime import collector_store, leases
from dashboard.runtime.leases import Lease
from dashboard.system import capabilities
from dashboard.transactions import reconcile_store, store
from dashboard.transactions.reconcile_store import ReconciledRows
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import NOT_REPORTED, Tombstone, TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka.capabilities import CapabilityCheck, CapabilityState
from fenceline.kafka.reconcile import Correction, KnownTransaction, Reconciliation
from fenceline.limits import Limits
from tests.db.conftest import NOW_MS, Take
from tests.db.test_transaction_store import batch_of
from tests.db.test_transaction_store import save as read
from tests.factories import record_table

pytestmark = pytest.mark.sql

NO_READ = "no READ on __transaction_state at kafka:9092; grant it: …"


def record(
    name: str, state: TransactionState = TransactionState.ONGOING, epoch: int = 0
) -> TransactionRecord:
    partitions = (TopicPartitions("orders", (0, 2)),)
    return TransactionRecord(name, state, 7, epoch, 60_000, partitions, NOW_MS, NOW_MS - 500)


def reconciliation_of(*corrected: Correction, alone: bool = False, **others: object) -> Reconciliation:
    return Reconciliation(NOW_MS, True, alone, corrections=corrected, seen_through_ms=NOW_MS, **others)  # type: ignore[arg-type]


def save(lease: Lease, reconciliation: Reconciliation) -> int:
    return reconcile_store.save_reconciliation(lease, reconciliation, now_ms=NOW_MS)


def known_row(lease: Lease, name: str) -> KnownTransaction:
    return ReconciledRows(lease).known_rows([name])[name]


def states() -> dict[str, int]:
    """The ids in each state as the pages count them; they must be those of the rows."""
    kept: Counter[str] = Counter()
    for row in StateCount.objects.all():
        kept[row.state] += row.n
    counted = Counter(Transaction.objects.values_list("state", flat=True))
    assert +kept == counted
    return dict(counted)


def ended(lease: Lease, name: str = "a") -> Correction:
    """Return that its coordinator has aborted the transaction of a row as it is now."""
    return Correction(record(name, TransactionState.COMPLETE_ABORT), known_row(lease, name))


def gone(lease: Lease, name: str, **fields: bool) -> Correction:
    return Correction(Tombstone(name), known_row(lease, name), **fields)


def listed(*names: str) -> Reconciliation:
    """Return a list that is the only source."""
    return reconciliation_of(*(Correction(record(name), None) for name in names), alone=True)


def test_a_row_is_corrected_to_its_coordinators_state(tail: Lease, reconciler: Lease) -> None:
    read(tail, batch_of(record("a"), record("b")))
    said = record("a", TransactionState.COMPLETE_ABORT, epoch=1)._replace(partitions=())
    correction = Correction(said, known_row(reconciler, "a"))
    assert save(reconciler, reconciliation_of(correction, agreed=1, requests=3, broker_ms=12.4)) == 1
    row = Transaction.objects.get(transactional_id="a")
    assert (row.state, row.producer_epoch, row.partition_count) == ("CompleteAbort", 1, 0)
    assert (row.log_partition, row.log_offset) == (3, -1)
    assert row.rev == Cluster.objects.get().rev - 1
    assert states() == {"CompleteAbort": 1, "Ongoing": 1}
    collector = Collector.objects.get(name="reconcile")
    assert (collector.requests, collector.broker_ms, collector.records) == (3, 12, 1)
    assert collector.seen_through_ms == NOW_MS
    expected = {"agreed": 1, "compared": 2, "corrected": 1, "unseen": []}
    assert {key: collector.detail[key] for key in ("agreed", "compared", "corrected", "unseen")} == expected


def test_a_record_saved_meanwhile_takes_precedence(tail: Lease, reconciler: Lease) -> None:
    read(tail, batch_of(record("a"), record("gone")))
    judged = ended(reconciler), gone(reconciler, "gone")
    read(tail, batch_of(record("a", TransactionState.PREPARE_COMMIT), record("gone"), previous=10, end=20))
    assert save(reconciler, reconciliation_of(*judged)) == 0
    assert save(reconciler, reconciliation_of(judged[0]._replace(ours=None))) == 0
    assert states() == {"PrepareCommit": 1, "Ongoing": 1}
    assert Collector.objects.get(name="reconcile").detail["corrected"] == 0


def test_the_next_record_replaces_a_correction(tail: Lease, reconciler: Lease) -> None:
    read(tail, batch_of(record("a")))
    save(reconciler, reconciliation_of(ended(reconciler)))
    save(reconciler, reconciliation_of(Correction(record("new", TransactionState.EMPTY), None)))
    assert states() == {"CompleteAbort": 1, "Empty": 1}
    read(tail, batch_of(record("a", epoch=5), record("new"), previous=10, end=20))
    assert states() == {"Ongoing": 2}
    expected = {(5, 3, 18), (0, 3, 19)}
    assert set(Transaction.objects.values_list("producer_epoch", "log_partition", "log_offset")) == expected


def test_an_id_deleted_by_its_coordinator_is_removed_and_its_history_expires(
    tail: Lease, reconciler: Lease
) -> None:
    read(tail, batch_of(record("a", TransactionState.EMPTY)))
    assert not Recent.objects.exists()
    assert save(reconciler, reconciliation_of(gone(reconciler, "a"))) == 1
    assert states() == {}
    assert Recent.objects.get().expired_ms == NOW_MS


def test_rows_outside_of_the_scope_are_removed_and_count_as_no_correction(
    tail: Lease, reconciler: Lease
) -> None:
    read(tail, batch_of(record("pay"), record("orders")))
    assert save(reconciler, reconciliation_of(outside=(gone(reconciler, "orders", hidden=True),))) == 0
    assert list(Transaction.objects.values_list("transactional_id", flat=True)) == ["pay"]
    assert states() == {"Ongoing": 1}
    assert Collector.objects.get(name="reconcile").detail["corrected"] == 0


def test_a_poll_without_changes_raises_no_revision(tail: Lease, reconciler: Lease) -> None:
    read(tail, batch_of(record("a")))
    save(reconciler, reconciliation_of(agreed=1))
    before = Cluster.objects.get().rev
    save(reconciler, reconciliation_of(agreed=2, pending=1))
    assert Cluster.objects.get().rev == before
    save(reconciler, reconciliation_of(agreed=2, unseen=("broker 2 at b:9092: it is loading",)))
    assert Cluster.objects.get().rev == before + 1


def test_trouble_ends_with_the_next_poll(reconciler: Lease) -> None:
    collector_store.save_trouble(reconciler, "cannot ask the coordinators", now_ms=NOW_MS)
    save(reconciler, reconciliation_of())
    assert Collector.objects.get().error == ""
    assert GapRecord.objects.get().until_ms == NOW_MS


def test_without_a_tail_every_listed_id_becomes_a_row(tail: Lease, reconciler: Lease) -> None:
    collector_store.save_trouble(tail, NO_READ, now_ms=NOW_MS)
    assert ReconciledRows(reconciler).without_tail()
    assert save(reconciler, listed(*(f"a-{number}" for number in range(4_500)))) == 4_500
    assert states() == {"Ongoing": 4_500}
    assert set(Transaction.objects.values_list("log_offset", "application")) == {(-1, "a")}
    assert Collector.objects.get(name="reconcile").seen_through_ms == NOW_MS
    changed = Correction(record("a-1", TransactionState.EMPTY), known_row(reconciler, "a-1"))
    assert save(reconciler, reconciliation_of(gone(reconciler, "a-0"), changed, alone=True)) == 2
    assert states() == {"Ongoing": 4_498, "Empty": 1}


def test_records_take_precedence_once_the_topic_is_readable(tail: Lease, reconciler: Lease) -> None:
    collector_store.save_trouble(tail, NO_READ, now_ms=NOW_MS)
    save(reconciler, listed("a", "b"))
    late = (ended(reconciler), Correction(record("c"), None), gone(reconciler, "b"))
    read(tail, batch_of(record("a", TransactionState.EMPTY)))
    assert states() == {"Empty": 1, "Ongoing": 1}
    assert not ReconciledRows(reconciler).without_tail()
    assert save(reconciler, reconciliation_of(*late, alone=True)) == 0
    rows = Transaction.objects.order_by("transactional_id").values_list("transactional_id", "log_offset")
    assert list(rows) == [("a", 9), ("b", -1)]
    # What is only in a list is judged like any row from now on.
    assert save(reconciler, reconciliation_of(gone(reconciler, "b"))) == 1
    assert states() == {"Empty": 1}


def test_states_stay_correct_when_a_correction_comes_between_a_tail_s_read_and_its_save(
    tail: Lease, reconciler: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tail, batch_of(record("a")))
    poll = reconciliation_of(ended(reconciler))
    monkeypatch.setattr(store, "_log_strange", lambda folded: save(reconciler, poll))
    read(tail, batch_of(record("a", TransactionState.EMPTY), previous=10, end=20))
    assert states() == {"Empty": 1}


def test_lists_are_the_only_source_only_without_read_and_without_positions(
    tail: Lease, reconciler: Lease
) -> None:
    rows = ReconciledRows(reconciler)
    assert not rows.without_tail()
    collector_store.save_trouble(tail, "cannot reach the cluster", now_ms=NOW_MS)
    assert not rows.without_tail()
    collector_store.save_trouble(tail, NO_READ, now_ms=NOW_MS)
    assert rows.without_tail()
    read(tail, batch_of(record("a")))
    collector_store.save_trouble(tail, NO_READ, now_ms=NOW_MS)
    assert not rows.without_tail()


def test_rows_are_read_as_they_are_compared(tail: Lease, reconciler: Lease, take: Take) -> None:
    both = ReconciledRows(reconciler, ("transaction_state", "transaction_state-1"))
    assert both.read_through_ms() is None
    second = take("transaction_state-1")
    leases.renew(second, seen_through_ms=NOW_MS - 9)
    assert both.read_through_ms() is None
    # No list is proof against a topic that was never read.
    unread = TailBatch(record_table({}), (), seen_through_ms=NOW_MS, behind=0)
    store.save_batch(tail, unread, topic_id="", rate=0.0, now_ms=NOW_MS)
    assert ReconciledRows(reconciler).read_through_ms() is None
    idle = record("b", TransactionState.EMPTY)._replace(partitions=None, started_ms=None)
    read(tail, batch_of(record("a"), idle))
    assert both.read_through_ms() == NOW_MS - 9
    opened = KnownTransaction(TransactionState.ONGOING, 7, 8, 0, NOW_MS - 500, 2)
    empty = KnownTransaction(TransactionState.EMPTY, 7, 9, 0, None, 0)
    assert both.open_rows() == {"a": opened}
    assert dict(both.all_rows()) == {"a": opened, "b": empty}
    assert both.known_rows(["b", "c"]) == {"b": empty}


def test_a_topic_that_is_missing_is_a_blind_spot_once_two_lists_in_a_row_have_entries(
    tail: Lease, reconciler: Lease
) -> None:
    reasons = []
    for ids in (1, 0, 3, 2, 5):
        save(reconciler, reconciliation_of(listed=ids))
        reasons.append(reconcile_store.absence_reason(reconciler.cluster_id, NOW_MS))
    assert reasons[:3] == [None, "", None]
    assert not ReconciledRows(reconciler).without_tail()
    collector_store.save_trouble(tail, reasons[-1] or "", now_ms=NOW_MS)
    assert ReconciledRows(reconciler).without_tail()
    read(tail, batch_of(record("a")))
    assert not ReconciledRows(reconciler).without_tail(), "it was read: what comes next is in the log"


def test_a_missing_topic_is_not_needed_only_as_long_as_complete_lists_have_no_id(reconciler: Lease) -> None:
    def reason(now_ms: int = NOW_MS) -> str | None:
        return reconcile_store.absence_reason(reconciler.cluster_id, now_ms)

    assert reason() is None, "no list yet"
    save(reconciler, reconciliation_of())
    assert reason() == ""
    assert reason(NOW_MS + 60_000) is None, "lists are old"
    save(reconciler, reconciliation_of(unseen=("broker 2: it answers CLUSTER_AUTHORIZATION_FAILED",)))
    assert "broker 2" in (reason() or "")
    save(reconciler, reconciliation_of())
    collector_store.save_trouble(reconciler, "no broker answers", now_ms=NOW_MS)
    assert "no broker answers" in (reason() or "")
    save(reconciler, reconciliation_of())
    where = {"cluster_id": reconciler.cluster_id, "topic": "orders", "partition": 0, "rev": 1}
    PartitionRecord.objects.create(**where, pinned_ms=NOW_MS, verdict="unknown")
    assert "hidden" in (reason() or ""), "transactions are open, and no list has an id"


@pytest.mark.parametrize("state", [CapabilityState.LIMITED, CapabilityState.MISSING])
def test_an_empty_list_is_no_proof_where_ids_may_be_hidden(
    take: Take, reconciler: Lease, state: CapabilityState
) -> None:
    save(reconciler, reconciliation_of())
    looked = take(capabilities.NAME)
    for check in (
        CapabilityCheck("transactions", "", CapabilityState.WORKS),
        CapabilityCheck("transactions", "", state, "no DESCRIBE on transactional-id *"),
    ):
        capabilities.save_capabilities(looked, [check], "", now_ms=NOW_MS)
        reason = reconcile_store.absence_reason(reconciler.cluster_id, NOW_MS)
        assert ("no DESCRIBE" in (reason or "")) is (check.state is state)


def test_a_list_that_leaves_ids_out_takes_no_proof_back(reconciler: Lease) -> None:
    for _ in range(2):
        save(reconciler, reconciliation_of(listed=1))
    for unseen in (), ("broker 1: it does not list transactions",):
        save(reconciler, reconciliation_of(unseen=unseen))
        assert "keeps no" in (reconcile_store.absence_reason(reconciler.cluster_id, NOW_MS) or "")


def test_an_open_transaction_that_may_not_be_described_any_more_is_a_gap_of_its_own(
    reconciler: Lease,
) -> None:
    save(reconciler, reconciliation_of(alone=True, lost={"a": "no DESCRIBE on this transactional id"}))
    gap = GapRecord.objects.get(source="reconcile", until_ms=None)
    assert (gap.scope, gap.reason) == ("transaction:a", "no DESCRIBE on this transactional id")
    many = {f"a-{number}": "no DESCRIBE" for number in range(101)}
    save(reconciler, reconciliation_of(alone=True, lost=many))
    assert [row.scope for row in GapRecord.objects.filter(until_ms=None)] == ["transactions"]
    save(reconciler, reconciliation_of(alone=True))
    assert not GapRecord.objects.filter(until_ms=None).exists()


def test_a_transaction_that_is_only_listed_is_open_since_then_at_least(reconciler: Lease) -> None:
    said = TransactionRecord("a", TransactionState.ONGOING, 7, NOT_REPORTED, NOT_REPORTED, None, NOW_MS, None)
    save(reconciler, reconciliation_of(Correction(said, None), alone=True))
    reader = SnapshotReader(reconciler.cluster)
    (found,) = reader.read(now_ms=NOW_MS + 70_000, limits=Limits()).transactions
    assert found.started_ms == NOW_MS
