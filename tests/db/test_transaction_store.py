"""Proves that a save is whole or nothing: rows, positions, revision and lease move together, once; and that
the last transitions of an id are in its row, and by themselves once it is forgotten."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.models import Cluster, Collector, GapRecord, Position, Recent, Transaction
from dashboard.runtime import collector_store, leases, visibility
from dashboard.runtime.leases import Lease, LeaseLost
from dashboard.transactions import queries as transaction_queries
from dashboard.transactions import store
from dashboard.transactions.sql import read_priors, recent_ring, recent_rings
from fenceline.decode import text
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import (
    NOT_FROM_LOG,
    PositionMove,
    RawRecord,
    Tombstone,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
)
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.factories import record_table, tail_batch
from tests.transaction_state_records import encode_key, encode_value

pytestmark = pytest.mark.sql


def record(
    name: str, state: TransactionState = TransactionState.ONGOING, epoch: int = 0
) -> TransactionRecord:
    partitions = (TopicPartitions("orders", (0, 2)), TopicPartitions("payments", (1,)))
    return TransactionRecord(name, state, 7, epoch, 60_000, partitions, NOW_MS, NOW_MS - 500, 2)


def batch_of(*facts: TransactionRecord | Tombstone, previous: int | None = None, end: int = 10) -> TailBatch:
    return tail_batch(3, *facts, previous=previous, end=end, seen_through_ms=NOW_MS)


def save(lease: Lease, seen: TailBatch, topic_id: str = "topic-1") -> int:
    return store.save_batch(lease, seen, topic_id=topic_id, rate=1.0, now_ms=NOW_MS)


def test_a_batch_becomes_rows_and_positions_of_one_revision(tail: Lease) -> None:
    rev = save(tail, batch_of(record("a"), record("b", TransactionState.EMPTY)))
    assert rev == Cluster.objects.get().rev == visibility.current_revision("prod")
    expected = {("a", "Ongoing", rev), ("b", "Empty", rev)}
    assert set(Transaction.objects.values_list("transactional_id", "state", "rev")) == expected
    assert collector_store.saved_positions("prod") == ("topic-1", {3: 10})


def test_a_position_keeps_the_epoch_of_the_batch_before_it(take: Take) -> None:
    topic = collector_store.TRANSACTION_STATE
    lease, seen = take(), batch_of(record("a"))
    save(lease, replace(seen, moves=tuple(move._replace(epoch=4) for move in seen.moves)))
    assert collector_store.saved_epochs("prod", topic) == {3: 4}
    save(lease, batch_of(record("a", epoch=1), previous=10, end=12))
    assert collector_store.saved_epochs("prod", topic) == {3: -1}


def test_every_column_follows_the_newest_record(tail: Lease) -> None:
    save(tail, batch_of(record("a")))
    row = Transaction.objects.get()
    assert transaction_queries.partitions_of(row) == record("a").partitions
    assert row.partition_count == 3
    committed = record("a", TransactionState.COMPLETE_COMMIT, epoch=4)
    save(tail, batch_of(committed._replace(partitions=(), started_ms=None), previous=10, end=12))
    row = Transaction.objects.get()
    expected = ("CompleteCommit", 4, None, 0)
    assert (row.state, row.producer_epoch, row.started_ms, row.partition_count) == expected
    assert (row.log_partition, row.log_offset) == (3, 11)
    assert transaction_queries.partitions_of(row) == ()


@pytest.mark.parametrize("previous", [None, 9, 11])
def test_a_batch_from_another_position_saves_nothing(tail: Lease, previous: int | None) -> None:
    save(tail, batch_of(record("a")))
    with pytest.raises(LeaseLost):
        save(tail, batch_of(record("a", TransactionState.COMPLETE_ABORT), previous=previous, end=20))
    assert Transaction.objects.get().state == "Ongoing"
    assert Collector.objects.get().records == 1


@cases(b"a\x00b", b"\xff\xfe", b"<script>", b"..", b"x" * 32_000, "עברית".encode(), b"\\x00", b"a/b%2F")
def test_any_bytes_are_an_id_that_is_found_again(tail: Lease, raw: bytes) -> None:
    name = text.escape_bytes(raw)
    save(tail, batch_of(record(name)))
    row = transaction_queries.find_transaction("prod", name)
    assert row is not None
    assert text.unescape_text(row.transactional_id) == raw
    assert transaction_queries.find_transaction("prod", "~" + bytes(row.key).hex()) == row


def test_two_spellings_of_an_id_are_one_row_that_a_tombstone_removes(tail: Lease) -> None:
    save(tail, batch_of(record("a.b"), record("b")))
    assert transaction_queries.find_transaction("prod", "a\\x2eb") is not None
    save(tail, batch_of(Tombstone("a.b"), previous=10, end=11))
    assert [row.transactional_id for row in Transaction.objects.all()] == ["b"]


def test_trouble_is_a_gap_until_the_next_poll(tail: Lease) -> None:
    def gaps() -> list[str]:
        return [gap.reason for gap in visibility.noun_visibility("prod", now_ms=NOW_MS).gaps]

    assert collector_store.save_trouble(tail, "cannot reach it", now_ms=NOW_MS)
    assert not collector_store.save_trouble(tail, "cannot reach it", now_ms=NOW_MS + 1)
    assert (gaps(), Collector.objects.get().error) == (["cannot reach it"], "cannot reach it")
    save(tail, batch_of(record("a")))
    assert gaps() == []
    gap = GapRecord.objects.get()
    assert (gap.since_ms, gap.until_ms, gap.count) == (NOW_MS, NOW_MS, 2)


def test_undecoded_records_are_counted_by_reason_and_compacted_offsets_in_one_gap(tail: Lease) -> None:
    encoded = encode_value(record("a"))
    bad_status = encoded[:16] + b"\x2a" + encoded[17:]
    for previous, end in ((None, 100), (100, 200)):
        moves = (PositionMove(0, previous, end, end),)
        strange = [RawRecord(bad, end - 1) for bad in (b"\x00\x63", b"\x00\x63", bad_status)]
        save(tail, TailBatch(record_table({0: {encode_key("a"): strange}}), moves, compacted=40))
    assert Collector.objects.get().undecoded == {"value_version": 4, "status": 2}
    gap = GapRecord.objects.get(scope="compaction")
    assert (gap.count, gap.until_ms) == (80, NOW_MS)


def test_a_replaced_topic_leaves_no_row_and_a_gap_with_the_reason(tail: Lease) -> None:
    save(tail, batch_of(record("a")))
    store.forget_topic(tail, "it was made again", topic_id="topic-1", now_ms=NOW_MS)
    assert Transaction.objects.count() == Position.objects.count() == 0
    assert GapRecord.objects.get().reason == "it was made again"
    save(tail, batch_of(record("a")), topic_id="topic-2")
    assert collector_store.saved_positions("prod") == ("topic-2", {3: 10})


def test_a_cluster_that_is_no_longer_configured_disappears_and_comes_back(tail: Lease) -> None:
    save(tail, batch_of(record("a")))
    for names, total in ((["other"], 0), (["prod", "other"], 1)):
        collector_store.sync_clusters(names)
        assert {row.name for row in visibility.configured_clusters()} == set(names)
        wanted = transaction_queries.SortedTransactions()
        assert transaction_queries.transaction_page(wanted, now_ms=NOW_MS).total == total
        assert ("prod" in leases.unheld_clusters("groups")["groups"]) == bool(total)


@cases((3_600_000, 400, 3_600_400), (0, 60_000, None))
def test_a_record_observed_live_measures_the_clock_skew_and_none_read_while_catching_up(
    tail: Lease, ago_ms: int, after_ms: int, clock_ms: int | None
) -> None:
    save(tail, batch_of(record("a")))
    assert Position.objects.values_list("since_ms", "clock_ms").get() == (NOW_MS, None)
    decided = record("a", TransactionState.PREPARE_COMMIT)._replace(updated_ms=NOW_MS - ago_ms)
    later = batch_of(decided, previous=10, end=11)
    store.save_batch(tail, later, topic_id="topic-1", rate=1.0, now_ms=NOW_MS + after_ms)
    assert Position.objects.get().clock_ms == clock_ms


@pytest.mark.sql("postgresql")
def test_postgresql_looks_known_ids_up_by_key_before_it_has_statistics(tail: Lease) -> None:
    names = [f"id-{number}" for number in range(2_000)]
    save(tail, batch_of(*(record(name) for name in names), end=len(names)))
    keys, cluster_id = [encode_key(name) for name in names[:3]], Cluster.objects.get().pk
    with CaptureQueriesContext(connection) as asked:
        assert read_priors(cluster_id, {3: [*keys, encode_key("unknown")]})[3].keys() == set(keys)
    with connection.cursor() as cursor:
        # The server may have counted the rows of the tests before.
        cursor.execute(
            "UPDATE pg_class SET reltuples = -1, relpages = 0 "
            "WHERE relname IN ('dashboard_transaction', 'dashboard_recent')"
        )
        for query in [captured["sql"] for captured in asked.captured_queries]:
            cursor.execute(f"EXPLAIN {query}".replace("%", "%%"))
            plan = " ".join(row[0] for row in cursor.fetchall())
            assert "transaction_key" in plan or "recent_key" in plan
            assert "Seq Scan" not in plan


@pytest.mark.sql("postgresql")
def test_postgresql_updates_rows_within_their_pages(tail: Lease) -> None:
    """Such an update writes no index: at 40,000 records a second that is half of what the server does."""
    save(tail, batch_of(record("a"), record("b")))
    before = updates_within_pages()
    began = record("a")._replace(started_ms=NOW_MS)
    save(tail, batch_of(began, began._replace(transactional_id="b"), previous=10, end=20))
    assert updates_within_pages() == before + 2


def updates_within_pages() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_get_xact_tuples_hot_updated('dashboard_transaction'::regclass)")
        return int(cursor.fetchone()[0])


KEY, PARTITION = key_of(b"a"), 3


@pytest.fixture
def save_next(take: Take) -> Callable[..., None]:
    """Save records of one partition, the next ones behind those of before."""
    lease, ends = take(), [0]

    def save_next(*facts: TransactionRecord | Tombstone) -> None:
        previous = ends[-1] or None
        ends.append(ends[-1] + len(facts))
        batch = tail_batch(PARTITION, *facts, previous=previous, end=ends[-1], seen_through_ms=NOW_MS)
        store.save_batch(lease, batch, topic_id="topic-1", rate=1.0, now_ms=NOW_MS)

    return save_next


def next_record(state: TransactionState, epoch: int = 0) -> TransactionRecord:
    return TransactionRecord("a", state, 7, epoch, 60_000, (), NOW_MS, None, 2)


def kinds() -> Sequence[str]:
    """Return the kinds of the last transitions, oldest first."""
    ring = recent_ring(Cluster.objects.get().pk, KEY)
    transitions = transition_ring.unpack_ring(ring.packed, PARTITION) if ring else ()
    return [transition.kind.value for transition in reversed(transitions)]


def test_an_id_that_is_forgotten_and_returns_keeps_its_last_transitions(
    save_next: Callable[..., None],
) -> None:
    save_next(next_record(TransactionState.EMPTY))
    assert not Recent.objects.exists()
    assert kinds() == ["init"]
    save_next(Tombstone("a", NOW_MS))
    assert Recent.objects.get().expired_ms == NOW_MS
    assert kinds() == ["init", "expiry"]
    save_next(next_record(TransactionState.EMPTY, 1))
    ring = recent_ring(Cluster.objects.get().pk, KEY)
    assert ring is not None
    assert ring.expired_ms is None
    assert bytes(Transaction.objects.get().recent) == ring.packed
    assert kinds()[:2] == ["init", "expiry"]
    save_next(Tombstone("a", NOW_MS + 1))
    assert kinds()[-1] == "expiry"
    assert Recent.objects.get().expired_ms == NOW_MS + 1


def test_an_id_that_only_a_list_names_again_has_the_transitions_from_before(
    save_next: Callable[..., None],
) -> None:
    save_next(next_record(TransactionState.EMPTY), next_record(TransactionState.EMPTY, 1))
    row = Transaction.objects.get()
    save_next(Tombstone("a", NOW_MS))
    before = kinds()
    row.pk, row.recent, row.log_offset = None, b"", NOT_FROM_LOG
    row.save()
    assert kinds() == before
    prior = read_priors(row.cluster_id, {PARTITION: [encode_key("a")]})[PARTITION][encode_key("a")]
    assert prior.state is TransactionState.EMPTY
    assert prior.record is None
    assert len(prior.packed) == len(before) * transition_ring.SIZE


def test_ids_without_transitions_are_left_out_and_lists_do_not_read_them(
    save_next: Callable[..., None],
) -> None:
    save_next(next_record(TransactionState.EMPTY))
    assert recent_rings(Cluster.objects.get().pk, [KEY, key_of(b"b")]).keys() == {KEY}
    assert Transaction.objects.get().get_deferred_fields() == {"recent"}
