"""Proves that commits, positions and lease move together, once, and that what is gone leaves no row."""

import json
from struct import pack

import pytest

from dashboard.groups import commit_store
from dashboard.models import Collector, CommitRecord, GapRecord, GroupRecord, Position
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease, LeaseLost
from fenceline.decode import text
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import PositionMove, RawRecord
from fenceline.kafka import commits
from fenceline.kafka.groups import Commit
from tests.db.conftest import NOW_MS, Take
from tests.factories import record_table

pytestmark = pytest.mark.sql

TOPIC = commits.TOPIC


def key(group: bytes, topic: bytes = b"t", partition: int = 0) -> bytes:
    head = pack(">hh", 1, len(group)) + group + pack(">h", len(topic)) + topic
    return head + pack(">i", partition)


def value(offset: int, at_ms: int = NOW_MS, metadata: bytes = b"") -> bytes:
    return pack(">hqih", 3, offset, 5, len(metadata)) + metadata + pack(">q", at_ms)


def batch_of(
    records: dict[bytes, bytes | None], previous: int | None = None, end: int = 10, **more: object
) -> TailBatch:
    raws = {name: [RawRecord(each, end - 1, NOW_MS)] for name, each in records.items()}
    return TailBatch(record_table({3: raws}), (PositionMove(3, previous, end, end),), **more)  # type: ignore[arg-type]


def save(lease: Lease, seen: TailBatch, held: dict[int, int] | None = None, now_ms: int = NOW_MS) -> None:
    commit_store.save_commits(lease, seen, topic_id="topic-1", rate=1.0, held=held or {}, now_ms=now_ms)


@pytest.fixture
def lease(take: Take) -> Lease:
    return take("consumer_offsets")


def test_the_newest_commit_becomes_a_row_with_its_position(lease: Lease) -> None:
    save(lease, batch_of({key(b"g"): value(7, NOW_MS - 5, b"hi"), key(b"h", b"t", 2): value(1)}))
    row = CommitRecord.objects.get(group_id="g")
    assert (row.topic, row.partition, row.offset, row.leader_epoch, row.metadata) == ("t", 0, 7, 5, "hi")
    assert (row.commit_ms, row.log_partition, row.log_offset) == (NOW_MS - 5, 3, 9)
    assert commits.unpack_commits(row.commits) == (Commit(NOW_MS - 5, 7),)
    assert CommitRecord.objects.count() == 2
    assert collector_store.saved_positions("prod", TOPIC) == ("topic-1", {3: 10})
    assert collector_store.saved_positions("prod") == ("", {}), "the positions of the other topic are its own"


def test_later_commits_extend_the_history(lease: Lease) -> None:
    save(lease, batch_of({key(b"g"): value(1, NOW_MS), key(b"g", b"t", 1): value(5, NOW_MS)}))
    save(lease, batch_of({key(b"g"): value(2, NOW_MS + 2_000)}, previous=10, end=12))
    save(lease, batch_of({key(b"g"): value(3, NOW_MS + 4_000)}, previous=12, end=13))
    row = CommitRecord.objects.get(group_id="g", partition=0)
    assert commits.unpack_commits(row.commits) == (
        Commit(NOW_MS, 1), Commit(NOW_MS + 2_000, 2), Commit(NOW_MS + 4_000, 3)
    )  # fmt: skip
    assert (row.offset, row.log_offset) == (3, 12)
    assert CommitRecord.objects.get(group_id="g", partition=1).offset == 5


def test_a_tombstone_removes_the_row_and_no_other(lease: Lease) -> None:
    save(lease, batch_of({key(b"g"): value(1), key(b"g", b"t", 1): value(1), key(b"h"): value(1)}))
    save(lease, batch_of({key(b"g"): None}, previous=10, end=11))
    assert set(CommitRecord.objects.values_list("group_id", "partition")) == {("g", 1), ("h", 0)}


def test_a_commit_after_a_tombstone_of_the_same_batch_begins_anew(lease: Lease) -> None:
    save(lease, batch_of({key(b"g"): value(900, NOW_MS)}))
    records = [RawRecord(None, 10, NOW_MS), RawRecord(value(3, NOW_MS + 2_000), 11, NOW_MS)]
    save(lease, TailBatch(record_table({3: {key(b"g"): records}}), (PositionMove(3, 10, 12, 12),)))
    assert commits.unpack_commits(CommitRecord.objects.get().commits) == (Commit(NOW_MS + 2_000, 3),)


@pytest.mark.parametrize("previous", [None, 9, 11])
def test_a_batch_from_another_position_saves_nothing(lease: Lease, previous: int | None) -> None:
    save(lease, batch_of({key(b"g"): value(1)}))
    with pytest.raises(LeaseLost):
        save(lease, batch_of({key(b"g"): value(2)}, previous=previous, end=20))
    assert CommitRecord.objects.get().offset == 1
    assert Collector.objects.get(name="consumer_offsets").records == 1


@pytest.mark.parametrize("raw", [b"", b"\x00\xff", b"<script>", b"g" * 32_000, "עברית".encode(), b"a\\b"])
def test_any_bytes_are_a_group(lease: Lease, raw: bytes) -> None:
    save(lease, batch_of({key(raw): value(1, NOW_MS, raw[:4096])}))
    save(lease, batch_of({key(raw): value(2)}, previous=10, end=11))
    row = CommitRecord.objects.get()
    assert text.unescape_text(row.group_id) == raw
    assert row.offset == 2


def test_what_cannot_be_decoded_and_newer_types_are_counted(lease: Lease) -> None:
    strange = {key(b"g"): b"\x00\x63", pack(">hh", 6, 1) + b"g": b"", pack(">h", 99): b"", b"": b""}
    save(lease, batch_of(strange))
    save(
        lease, batch_of({pack(">hh", 6, 1) + b"h": b"", pack(">hh", 7, 1) + b"g": None}, previous=10, end=11)
    )
    row = Collector.objects.get(name="consumer_offsets")
    assert row.undecoded == {"value_version": 1, "key_type": 1, "truncated": 1}
    assert row.detail["newer_types"] == {"6": 2, "7": 1}


def test_members_join_and_leave(lease: Lease) -> None:
    member = pack(">hh1sh", 5, 1, b"g", 2)
    joined = b"\x00\x00\x00\x00\x03cl\x02h\x01\x00" + pack(">i", 1) + b"\x00\x00"
    save(lease, batch_of({member + b"m1": joined}))
    save(lease, batch_of({member + b"m2": joined}, previous=10, end=12))
    assert json.loads(GroupRecord.objects.get().members) == {"m1": ["cl", "h"], "m2": ["cl", "h"]}
    save(lease, batch_of({member + b"m1": None}, previous=12, end=13))
    assert json.loads(GroupRecord.objects.get().members) == {"m2": ["cl", "h"]}


def test_a_blocked_partition_is_a_gap_while_it_lasts(lease: Lease) -> None:
    save(lease, batch_of({}), held={3: NOW_MS - 2_000, 7: NOW_MS - 2_000})
    save(lease, batch_of({}, previous=10, end=11), held={7: NOW_MS - 2_000}, now_ms=NOW_MS + 500)
    gaps = {gap.scope: gap.until_ms for gap in GapRecord.objects.all()}
    assert gaps == {f"{TOPIC}-3": NOW_MS + 500, f"{TOPIC}-7": None}
    assert collector_store.save_trouble(lease, "cannot reach it", now_ms=NOW_MS)
    save(lease, batch_of({}, previous=11, end=12), now_ms=NOW_MS + 900)
    assert not GapRecord.objects.filter(until_ms=None).exists()


def test_the_coordinator_s_clock_skew_is_measured_by_commits_observed_live(lease: Lease) -> None:
    old = batch_of({key(b"g"): value(1, NOW_MS - 9_000_000)}, seen_through_ms=NOW_MS)
    save(lease, old)
    assert Position.objects.get().clock_ms is None
    hour = 3_600_000
    save(lease, batch_of({key(b"g"): value(2, NOW_MS - hour)}, previous=10, end=11), now_ms=NOW_MS + 300)
    assert Position.objects.get().clock_ms == hour + 300


def test_a_replaced_topic_leaves_no_row_and_a_gap_with_the_reason(lease: Lease) -> None:
    save(lease, batch_of({key(b"g"): value(1)}))
    commit_store.forget_topic(lease, "it was made again", topic_id="topic-1", now_ms=NOW_MS)
    assert CommitRecord.objects.count() == Position.objects.count() == 0
    assert GapRecord.objects.get().reason == "it was made again"
    commit_store.forget_topic(lease, "another shard was first", topic_id="topic-1", now_ms=NOW_MS)
    assert GapRecord.objects.count() == 1
