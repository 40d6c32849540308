"""Proves that a poll of groups becomes rows, that unavailable ones keep theirs, and that only changes are
written; that commits, positions and lease move together, once, and that what is gone leaves no row."""

import json
from collections.abc import Mapping
from dataclasses import replace
from struct import pack
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.groups import commit_store
from dashboard.groups import store as group_store
from dashboard.models import (
    AddedOffsetsRecord,
    Cluster,
    Collector,
    CommitRecord,
    GapRecord,
    Group,
    GroupOffset,
    GroupRecord,
    Position,
)
from dashboard.runtime import collector_store
from dashboard.runtime.leases import Lease, LeaseLost
from fenceline.decode import text
from fenceline.decode.tail_batch import TailBatch
from fenceline.facts import PositionMove, RawRecord, TopicPartition
from fenceline.kafka import commits
from fenceline.kafka.added_offsets import AddedOffset, AddedOffsets, unpack_offsets
from fenceline.kafka.group_observation import ObservedGroups, PendingCommit, SeenGroup
from fenceline.kafka.groups import Commit, Committed
from fenceline.kafka.partitions import Offsets
from fenceline.kafka.transactional_ids import key_of
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.factories import record_table

pytestmark = pytest.mark.sql
HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
ENDS = {HERE: Offsets(0, 20, 30, 1), THERE: Offsets(0, 5, 5, 1)}


def observed_group(*places: TopicPartition, offset: int = 10, **more: object) -> SeenGroup:
    committed = {where: Committed(offset) for where in places or (HERE,)}
    return SeenGroup("Stable", "Classic", 1, 3, committed, **more)  # type: ignore[arg-type]


def groups_poll(groups: Mapping[str, SeenGroup], at_ms: int = NOW_MS, **more: object) -> ObservedGroups:
    return ObservedGroups(at_ms, groups, ENDS, **more)  # type: ignore[arg-type]


def save(lease: Lease, found: ObservedGroups) -> int:
    rows = group_store.GroupRows(lease, found.at_ms)
    return group_store.save_groups(lease, found, rows, now_ms=found.at_ms)


@pytest.fixture
def lease(take: Take) -> Lease:
    return take("groups")


def test_a_poll_becomes_rows(lease: Lease) -> None:
    assert save(lease, groups_poll({"g": observed_group(HERE, THERE, offset=5)})) == 1
    group = Group.objects.get()
    assert (group.group_id, group.key, group.family) == ("g", key_of(b"g"), "g")
    assert (group.state, group.kind, group.coordinator, group.log_partition) == ("Stable", "Classic", 1, 3)
    assert (group.partitions, group.lag_lso, group.lag_hw, group.members) == (2, 15, 25, None)
    assert (group.seen_ms, group.error, group.rev) == (NOW_MS, "", Cluster.objects.get().rev - 1)
    row = GroupOffset.objects.get(partition=0)
    assert (row.offset, row.lso, row.high_watermark, row.log_start) == (5, 20, 30, 0)
    assert (row.waiting, row.commit_ms) == ("not_yet", NOW_MS)
    assert json.loads(row.points) == [[NOW_MS, 5, 15]]
    assert json.loads(group.trend) == [[NOW_MS, 15, 25]]
    assert Collector.objects.get(name="groups").seen_through_ms == NOW_MS


def test_an_unchanged_poll_writes_no_group_until_the_row_is_old(lease: Lease) -> None:
    save(lease, groups_poll({"g": observed_group(THERE, offset=5)}))
    with CaptureQueriesContext(connection) as queries:
        assert save(lease, groups_poll({"g": observed_group(THERE, offset=5)}, NOW_MS + 2_000)) == 0
    assert not [each for each in queries.captured_queries if "INTO dashboard_group" in each["sql"]]
    assert save(lease, groups_poll({"g": observed_group(THERE, offset=5)}, NOW_MS + 20_000)) == 1
    assert Group.objects.get().seen_ms == NOW_MS + 20_000
    assert len(json.loads(GroupOffset.objects.get().points)) == 2


def test_a_group_that_a_broker_does_not_list_keeps_its_row_with_an_error_and_a_gap(lease: Lease) -> None:
    both = {"g": observed_group(HERE, THERE), "h": observed_group()}
    save(lease, groups_poll(both))
    silent = {"gaps": {"broker:2": "no answer in time"}, "partial": "broker 2: no answer in time"}
    save(lease, groups_poll({"g": observed_group(HERE, THERE)}, NOW_MS + 9, **silent))
    assert Group.objects.get(group_id="h").error == "broker 2: no answer in time"
    assert GroupOffset.objects.count() == 3
    gap = GapRecord.objects.get()
    assert (gap.source, gap.scope, gap.until_ms) == ("groups", "broker:2", None)
    assert Collector.objects.get(name="groups").seen_through_ms == NOW_MS + 9, "the gap says what is older"
    save(lease, groups_poll(both, NOW_MS + 20))
    assert Group.objects.get(group_id="h").error == ""
    assert GapRecord.objects.get().until_ms == NOW_MS + 20
    # Groups and partitions that are gone leave no row.
    save(lease, groups_poll({"g": observed_group(THERE)}, NOW_MS + 21))
    assert [(row.group.group_id, row.partition) for row in GroupOffset.objects.all()] == [("g", 1)]
    assert Group.objects.count() == 1


def test_a_group_without_describe_keeps_its_last_facts_and_a_long_name_is_cut(lease: Lease) -> None:
    name = "g" * 400
    save(lease, groups_poll({name: observed_group(offset=7)}))
    unseen = SeenGroup(error="no DESCRIBE on this group", unseen=True)
    save(lease, groups_poll({name: unseen}, NOW_MS + 5, gaps={f"group:{name}": "no DESCRIBE on this group"}))
    group = Group.objects.get()
    assert (group.error, group.state, group.lag_lso) == ("no DESCRIBE on this group", "Stable", 13)
    assert GroupOffset.objects.get().offset == 7
    assert (len(GapRecord.objects.get().scope), len(group.family)) <= (300, 200)


def commit_record(lease: Lease, offset: int, at_ms: int) -> None:
    CommitRecord.objects.create(
        cluster_id=lease.cluster_id, key=key_of(b"g"), group_id="g", topic="t", partition=0, offset=offset,
        commit_ms=at_ms, commits=f"[[{at_ms},{offset}]]", log_partition=3, log_offset=9,
    )  # fmt: skip


def group_record(lease: Lease, members: str) -> None:
    GroupRecord.objects.create(
        cluster_id=lease.cluster_id, key=key_of(b"g"), group_id="g", members=members, log_partition=3,
        log_offset=1,
    )  # fmt: skip


def test_the_commit_instant_comes_from_the_log_if_the_offset_is_the_same_and_members_do(lease: Lease) -> None:
    commit_record(lease, 10, NOW_MS - 70_000)
    group_record(lease, '{"a":["c","h"],"b":["c","h"]}')
    for offset, after_ms, commit_ms in ((10, 0, NOW_MS - 70_000), (11, 4_000, NOW_MS + 4_000)):
        save(lease, groups_poll({"g": observed_group(offset=offset)}, NOW_MS + after_ms))
        assert (GroupOffset.objects.get().commit_ms, Group.objects.get().members) == (commit_ms, 2)


@cases(
    ("Stable", '{"a":["c","h",["elsewhere"]]}', "LEFT"),
    ("Stable", '{"a":["c","h",["elsewhere"]],"b":["c","h",["t"]]}', "STOP"),
    ("Stable", '{"a":["c","h",["elsewhere"]],"b":["c","h"]}', "STOP"),
    ("Empty", '{"a":["c","h",["elsewhere"]]}', "STOP"),
    ("Stable", "{}", "STOP"),
)
def test_a_group_that_left_a_topic_has_not_stopped(
    lease: Lease, state: str, members: str, status: str
) -> None:
    group_record(lease, members)
    commit_record(lease, 10, NOW_MS - 7_200_000)
    for late_ms in (0, 90_000):
        group = replace(observed_group(offset=10), state=state)
        save(lease, groups_poll({"g": group}, NOW_MS + late_ms))
    assert (GroupOffset.objects.get().status, Group.objects.get().status) == (status, status)


def test_a_pending_commit_is_a_row_that_names_its_transaction(lease: Lease) -> None:
    group = SeenGroup("Empty", "Classic", 1, 3, {HERE: None}, frozenset({HERE}))
    pending = {("g", HERE): (PendingCommit(40, 7, 1, "enrich-1"),)}
    save(lease, groups_poll({"g": group}, pending=pending))
    row = GroupOffset.objects.get()
    assert (row.offset, row.unstable, row.status) == (None, True, "UNKNOWN")
    (blocker,) = row.blockers
    expected = ("enrich-1", 7, 1)
    assert (blocker["transactional_id"], blocker["producer_id"], blocker["producer_epoch"]) == expected
    assert (blocker["pending"], blocker["certain"], blocker["offset"]) == (True, True, 40)
    assert (Group.objects.get().unstable, Group.objects.get().lag_lso) == (1, None)
    # What was read back is what was written: nothing is news.
    assert save(lease, groups_poll({"g": group}, NOW_MS + 1, pending=pending)) == 0


def test_many_groups_are_saved_in_parts(lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_store, "_SAVE_AT_ONCE", 10)
    groups = {f"g{n}": observed_group(HERE, THERE) for n in range(25)}
    assert save(lease, groups_poll(groups)) == 25
    assert (Group.objects.count(), GroupOffset.objects.count()) == (25, 50)
    assert Group.objects.values("rev").distinct().count() > 1
    assert save(lease, replace(groups_poll(groups), at_ms=NOW_MS + 1)) == 0


@cases((10, 60, 10), (4, 60, 4), (120, 60, 60))
def test_a_group_that_stays_at_the_lso_is_blocked_and_ok_once_it_moves(
    lease: Lease, settings: Any, blocked_s: float, stalled_s: float, after_s: int
) -> None:
    """It counts no later than the finding about it opens, whatever the limits."""
    limits = replace(settings.FENCELINE.limits, group_blocked_s=blocked_s, group_stalled_s=stalled_s)
    settings.FENCELINE = replace(settings.FENCELINE, limits=limits)
    ends = {**ENDS, THERE: Offsets(0, 20, 20, 1)}
    statuses = []
    for ms in (0, 1_000 * after_s - 1, 1_000 * after_s):
        found = groups_poll({"g": observed_group(HERE, THERE, offset=20)}, NOW_MS + ms)
        save(lease, replace(found, offsets=ends))
        group = Group.objects.get()
        statuses.append((group.status, group.blocked))
    assert statuses == [("OK", 0), ("OK", 0), ("BLOCKED", 1)], "the worst of its partitions"
    by_partition = dict(GroupOffset.objects.values_list("partition", "status"))
    assert by_partition == {0: "BLOCKED", 1: "OK"}
    ended = groups_poll({"g": observed_group(HERE, offset=30)}, NOW_MS + 200_000)
    save(lease, replace(ended, offsets={HERE: Offsets(0, 30, 30, 1)}))
    assert (Group.objects.get().status, Group.objects.get().blocked) == ("OK", 0)


def added(offset: int, at_ms: int, **fields: Any) -> AddedOffsets:
    part = AddedOffsets(11, 4, 3, (AddedOffset("g", "t", 0, offset, NOW_MS, 3, 9),), 1, "", 0, at_ms)
    return part._replace(**fields)


def test_added_offsets_are_kept_of_the_newest_transaction_of_each_producer(lease: Lease) -> None:
    save(lease, groups_poll({}, added=[added(5, NOW_MS), added(5, NOW_MS, log_partition=8)]))
    assert AddedOffsetsRecord.objects.count() == 2
    ended, begun = added(5, NOW_MS + 9, marker="commit"), added(6, NOW_MS + 9)
    save(lease, groups_poll({}, NOW_MS + 9, added=[ended, begun]))
    row = AddedOffsetsRecord.objects.get(log_partition=3)
    assert (unpack_offsets(row.offsets), row.marker) == (begun.offsets, "")
    # Unchanged ones are written again when they are old.
    for after_ms, read_ms in ((2_009, NOW_MS + 9), (20_009, NOW_MS + 20_009)):
        save(lease, groups_poll({}, NOW_MS + after_ms, added=[added(6, NOW_MS + after_ms)]))
        assert AddedOffsetsRecord.objects.get(log_partition=3).read_ms == read_ms


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


def save_batch(
    commits_lease: Lease, seen: TailBatch, held: dict[int, int] | None = None, now_ms: int = NOW_MS
) -> None:
    commit_store.save_commits(
        commits_lease, seen, topic_id="topic-1", rate=1.0, held=held or {}, now_ms=now_ms
    )


@pytest.fixture
def commits_lease(take: Take) -> Lease:
    return take("consumer_offsets")


def test_the_newest_commit_becomes_a_row_with_its_position(commits_lease: Lease) -> None:
    save_batch(
        commits_lease, batch_of({key(b"g"): value(7, NOW_MS - 5, b"hi"), key(b"h", b"t", 2): value(1)})
    )
    row = CommitRecord.objects.get(group_id="g")
    assert (row.topic, row.partition, row.offset, row.leader_epoch, row.metadata) == ("t", 0, 7, 5, "hi")
    assert (row.commit_ms, row.log_partition, row.log_offset) == (NOW_MS - 5, 3, 9)
    assert commits.unpack_commits(row.commits) == (Commit(NOW_MS - 5, 7),)
    assert CommitRecord.objects.count() == 2
    assert collector_store.saved_positions("prod", TOPIC) == ("topic-1", {3: 10})
    assert collector_store.saved_positions("prod") == ("", {}), "the positions of the other topic are its own"


def test_later_commits_extend_the_history(commits_lease: Lease) -> None:
    save_batch(commits_lease, batch_of({key(b"g"): value(1, NOW_MS), key(b"g", b"t", 1): value(5, NOW_MS)}))
    save_batch(commits_lease, batch_of({key(b"g"): value(2, NOW_MS + 2_000)}, previous=10, end=12))
    save_batch(commits_lease, batch_of({key(b"g"): value(3, NOW_MS + 4_000)}, previous=12, end=13))
    row = CommitRecord.objects.get(group_id="g", partition=0)
    assert commits.unpack_commits(row.commits) == (
        Commit(NOW_MS, 1), Commit(NOW_MS + 2_000, 2), Commit(NOW_MS + 4_000, 3)
    )  # fmt: skip
    assert (row.offset, row.log_offset) == (3, 12)
    assert CommitRecord.objects.get(group_id="g", partition=1).offset == 5


def test_a_tombstone_removes_the_row_and_no_other(commits_lease: Lease) -> None:
    save_batch(
        commits_lease, batch_of({key(b"g"): value(1), key(b"g", b"t", 1): value(1), key(b"h"): value(1)})
    )
    save_batch(commits_lease, batch_of({key(b"g"): None}, previous=10, end=11))
    assert set(CommitRecord.objects.values_list("group_id", "partition")) == {("g", 1), ("h", 0)}


def test_a_commit_after_a_tombstone_of_the_same_batch_begins_anew(commits_lease: Lease) -> None:
    save_batch(commits_lease, batch_of({key(b"g"): value(900, NOW_MS)}))
    records = [RawRecord(None, 10, NOW_MS), RawRecord(value(3, NOW_MS + 2_000), 11, NOW_MS)]
    save_batch(
        commits_lease, TailBatch(record_table({3: {key(b"g"): records}}), (PositionMove(3, 10, 12, 12),))
    )
    assert commits.unpack_commits(CommitRecord.objects.get().commits) == (Commit(NOW_MS + 2_000, 3),)


@pytest.mark.parametrize("previous", [None, 9, 11])
def test_a_batch_from_another_position_saves_nothing(commits_lease: Lease, previous: int | None) -> None:
    save_batch(commits_lease, batch_of({key(b"g"): value(1)}))
    with pytest.raises(LeaseLost):
        save_batch(commits_lease, batch_of({key(b"g"): value(2)}, previous=previous, end=20))
    assert CommitRecord.objects.get().offset == 1
    assert Collector.objects.get(name="consumer_offsets").records == 1


@pytest.mark.parametrize("raw", [b"", b"\x00\xff", b"<script>", b"g" * 32_000, "עברית".encode(), b"a\\b"])
def test_any_bytes_are_a_group(commits_lease: Lease, raw: bytes) -> None:
    save_batch(commits_lease, batch_of({key(raw): value(1, NOW_MS, raw[:4096])}))
    save_batch(commits_lease, batch_of({key(raw): value(2)}, previous=10, end=11))
    row = CommitRecord.objects.get()
    assert text.unescape_text(row.group_id) == raw
    assert row.offset == 2


def test_what_cannot_be_decoded_and_newer_types_are_counted(commits_lease: Lease) -> None:
    strange = {key(b"g"): b"\x00\x63", pack(">hh", 6, 1) + b"g": b"", pack(">h", 99): b"", b"": b""}
    save_batch(commits_lease, batch_of(strange))
    save_batch(
        commits_lease,
        batch_of({pack(">hh", 6, 1) + b"h": b"", pack(">hh", 7, 1) + b"g": None}, previous=10, end=11),
    )
    row = Collector.objects.get(name="consumer_offsets")
    assert row.undecoded == {"value_version": 1, "key_type": 1, "truncated": 1}
    assert row.detail["newer_types"] == {"6": 2, "7": 1}


def test_members_join_and_leave(commits_lease: Lease) -> None:
    member = pack(">hh1sh", 5, 1, b"g", 2)
    joined = b"\x00\x00\x00\x00\x03cl\x02h\x01\x00" + pack(">i", 1) + b"\x00\x00"
    save_batch(commits_lease, batch_of({member + b"m1": joined}))
    save_batch(commits_lease, batch_of({member + b"m2": joined}, previous=10, end=12))
    assert json.loads(GroupRecord.objects.get().members) == {"m1": ["cl", "h"], "m2": ["cl", "h"]}
    save_batch(commits_lease, batch_of({member + b"m1": None}, previous=12, end=13))
    assert json.loads(GroupRecord.objects.get().members) == {"m2": ["cl", "h"]}


def test_a_blocked_partition_is_a_gap_while_it_lasts(commits_lease: Lease) -> None:
    save_batch(commits_lease, batch_of({}), held={3: NOW_MS - 2_000, 7: NOW_MS - 2_000})
    save_batch(
        commits_lease, batch_of({}, previous=10, end=11), held={7: NOW_MS - 2_000}, now_ms=NOW_MS + 500
    )
    gaps = {gap.scope: gap.until_ms for gap in GapRecord.objects.all()}
    assert gaps == {f"{TOPIC}-3": NOW_MS + 500, f"{TOPIC}-7": None}
    assert collector_store.save_trouble(commits_lease, "cannot reach it", now_ms=NOW_MS)
    save_batch(commits_lease, batch_of({}, previous=11, end=12), now_ms=NOW_MS + 900)
    assert not GapRecord.objects.filter(until_ms=None).exists()


def test_the_coordinator_s_clock_skew_is_measured_by_commits_observed_live(commits_lease: Lease) -> None:
    old = batch_of({key(b"g"): value(1, NOW_MS - 9_000_000)}, seen_through_ms=NOW_MS)
    save_batch(commits_lease, old)
    assert Position.objects.get().clock_ms is None
    hour = 3_600_000
    save_batch(
        commits_lease,
        batch_of({key(b"g"): value(2, NOW_MS - hour)}, previous=10, end=11),
        now_ms=NOW_MS + 300,
    )
    assert Position.objects.get().clock_ms == hour + 300


def test_a_replaced_topic_leaves_no_row_and_a_gap_with_the_reason(commits_lease: Lease) -> None:
    save_batch(commits_lease, batch_of({key(b"g"): value(1)}))
    commit_store.forget_topic(commits_lease, "it was made again", topic_id="topic-1", now_ms=NOW_MS)
    assert CommitRecord.objects.count() == Position.objects.count() == 0
    assert GapRecord.objects.get().reason == "it was made again"
    commit_store.forget_topic(commits_lease, "another shard was first", topic_id="topic-1", now_ms=NOW_MS)
    assert GapRecord.objects.count() == 1
