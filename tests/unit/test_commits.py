"""Proves what is kept of records of `__consumer_offsets`, wherever a stream of them is cut; which offsets
count as a transaction's own; and that what is not known is named."""

from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kafka.markers import Markers, nothing_to_read
from fenceline.decode.consumer_offsets import Member
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import RawRecord, TopicPartition, TopicPartitions, TransactionRecord, TransactionState
from fenceline.kafka import commits
from fenceline.kafka.added_offsets import (
    MOST_OFFSETS,
    NOTHING_ADDED,
    AddedOffset,
    AddedOffsets,
    Observation,
    TransactionOffsets,
    newest_offsets,
    offsets_of,
    pack_offsets,
    unpack_offsets,
)
from fenceline.kafka.commits import (
    MOST_COMMITS,
    CommitBatch,
    CommitKey,
    Gone,
    Joined,
    KeptCommits,
    pack_members,
    subscribed_topics,
    thin_commits,
    unpack_members,
)
from fenceline.kafka.groups import Commit
from fenceline.kafka.partitions import Offsets
from tests.cases import cases
from transaction_admin.api import Batches

NOW = 1_795_000_000_000
PLACE = CommitKey("g", "t", 3)


def key(kind: int = 1, partition: int = 3) -> bytes:
    return pack(">hh1sh1si", kind, 1, b"g", 1, b"t", partition)


def value(offset: int, at_ms: int = NOW, metadata: bytes = b"") -> bytes:
    return pack(">hqih", 3, offset, -1, len(metadata)) + metadata + pack(">q", at_ms)


def raws(*values: bytes | None, first: int = 0) -> list[RawRecord]:
    return [RawRecord(each, first + n) for n, each in enumerate(values)]


def read_batch(records: dict[bytes, list[RawRecord]]) -> CommitBatch:
    found = CommitBatch()
    commits.read_commits(found, 7, records)
    return found


def test_the_newest_commit_is_kept_with_the_last_ones_and_a_tombstone_ends_all_of_it() -> None:
    found = read_batch({key(): raws(*(value(n, NOW + 2_000 * n, b"m") for n in range(5)))})
    history = tuple(Commit(NOW + 2_000 * n, n) for n in range(5))
    assert found.newest == {PLACE: KeptCommits(4, None, "m", NOW + 8_000, history, 7, 4)}
    assert read_batch({key(): raws(value(1), None)}).newest == {PLACE: Gone(1)}
    found = read_batch({key(): raws(value(9), None, value(1, NOW + 1))})
    (kept,) = found.newest.values()
    assert isinstance(kept, KeptCommits)
    assert kept.commits == (Commit(NOW + 1, 1),)
    assert found.begun_anew == {PLACE}


@pytest.mark.parametrize("old_first", [True, False])
def test_of_two_versions_of_a_key_the_newer_record_counts(old_first: bool) -> None:
    old, new = (key(0), raws(value(1), first=3)), (key(1), raws(None, first=8))
    found = read_batch(dict([old, new] if old_first else [new, old]))
    assert found.newest == {PLACE: Gone(8)}


def test_unreadable_records_are_counted_and_earlier_commits_kept() -> None:
    found = read_batch(
        {key(): raws(value(1), b"\x00\x07"), b"\x00\x63": raws(b""), pack(">hh", 6, 0): raws(b"", b"")}
    )
    assert isinstance(found.newest[PLACE], KeptCommits)
    assert found.undecoded == {"value_version": 1, "key_type": 1}
    assert found.strange["value_version"] == (7, 1, "value version 7")
    assert found.newer == {6: 2}


steps = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 50)), min_size=1, max_size=120)


@given(steps, st.integers(1, 20))
def test_a_history_does_not_depend_on_where_it_was_cut(steps: list[tuple[int, int]], pieces: int) -> None:
    """But for how it is thinned at the cuts: it is never longer, nearer, older or without the newest."""
    at_ms, written = NOW, []
    for step_ms, offset in steps:
        at_ms += step_ms
        written.append(Commit(at_ms, offset))
    kept: tuple[Commit, ...] = ()
    size = max(1, len(written) // pieces)
    for start in range(0, len(written), size):
        part = written[start : start + size]
        one = KeptCommits(part[-1].offset, None, "", part[-1].at_ms, thin_commits(part), 0, start)
        kept = commits.merge_commits(one, kept).commits
    assert kept[-1] == written[-1]
    assert len(kept) <= MOST_COMMITS
    assert set(kept) <= set(written)
    assert list(kept) == sorted(kept, key=lambda each: each.at_ms)
    apart = [later.at_ms - sooner.at_ms for sooner, later in pairwise(kept[:-1])]
    assert all(each >= 1_000 for each in apart)
    span_ms = written[-1].at_ms - written[0].at_ms
    assert kept[-1].at_ms - kept[0].at_ms >= min(span_ms, (MOST_COMMITS - 2) * 1_000)


def test_a_group_that_commits_constantly_keeps_a_history_of_some_seconds() -> None:
    """Not for its last twenty commits: those were made within a second."""
    kept: tuple[Commit, ...] = ()
    for n in range(600):
        kept = commits.merge_commits(
            KeptCommits(n, None, "", NOW + 50 * n, (Commit(NOW + 50 * n, n),), 0, n), kept
        ).commits
    assert kept[-1].at_ms - kept[0].at_ms >= 18_000


@given(st.lists(st.builds(Commit, st.integers(0, 2**53), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_a_history_is_read_back_as_it_was_written(history: list[Commit]) -> None:
    assert commits.unpack_commits(commits.pack_commits(history)) == tuple(history)


def members_of(records: dict[bytes, list[RawRecord]], before: dict[str, tuple[str, str]]) -> Joined:
    return commits.merge_members(read_batch(records).changes["g"], before)


CLASSIC = pack(">hh1s", 2, 1, b"g")


def classic(*names: bytes) -> bytes:
    head = b"\x00\x00\x00\x08consumer" + pack(">ihh", 1, -1, -1) + pack(">i", len(names))
    rest = pack(">h2sh1s", 2, b"cl", 1, b"h") + pack(">iii", 10, 0, 0)
    return head + b"".join(pack(">h", len(name)) + name + rest for name in names)


def newer(name: bytes) -> bytes:
    return pack(">hh1sh", 5, 1, b"g", len(name)) + name


JOINED = b"\x00\x00\x00\x00\x03cl\x02h\x01\x00" + pack(">i", 1) + b"\x00\x00"


def test_the_members_of_a_group_are_those_of_its_last_rebalance_or_come_and_leave_one_by_one() -> None:
    # A classic group.
    found = members_of({CLASSIC: raws(classic(b"a"), classic(b"b", b"c"))}, {"old": Member("x", "y")})
    assert found == Joined({"b": Member("cl", "h"), "c": Member("cl", "h")}, 7, 1)
    assert members_of({CLASSIC: raws(None)}, {"old": Member("x", "y")}).members == {}
    # A consumer group.
    records = {newer(b"a"): raws(JOINED, first=1), newer(b"old"): raws(None, first=2)}
    assert members_of(records, {"old": Member("x", "y")}) == Joined({"a": Member("cl", "h")}, 7, 2)
    # A group that changes its protocol keeps the members that joined later.
    records = {newer(b"a"): raws(JOINED, first=5), CLASSIC: raws(None, first=4)}
    assert members_of(records, {"old": Member("x", "y")}).members == {"a": Member("cl", "h")}


def test_members_are_kept_with_their_topics_where_these_are_known() -> None:
    members = {"a": Member("cl", "h"), "b": Member("cl", "h", ("t", "u"))}
    packed = pack_members(members)
    assert packed == '{"a":["cl","h"],"b":["cl","h",["t","u"]]}'
    assert unpack_members(packed) == members
    assert unpack_members("") == {}
    # Those of a group are known where those of each member are.
    for topics, found in (([("t",), ("t", "u")], {"t", "u"}), ([("t",), None], None), ([], None)):
        assert subscribed_topics({str(n): Member("cl", "h", each) for n, each in enumerate(topics)}) == found


def data(first: int, last: int, producer: int = -1, records: int = 1) -> RecordBatch:
    return RecordBatch(first, last, producer, 0, producer >= 0, "", records)


def marker(at: int, producer: int, word: str) -> RecordBatch:
    return RecordBatch(at, at, producer, 0, True, word, 1)


@cases(
    ([data(0, 4, 7), marker(5, 7, "commit")], 5, 6, True),
    ([data(0, 4, 7), marker(5, 7, "commit")], 4, 6, False),
    ([data(0, 4, 7), marker(5, 7, "abort")], 0, 6, True),
    ([data(0, 4)], 5, 5, True),
    ([data(0, 4)], 2, 5, False),
    ([data(0, 4, records=0)], 0, 5, True),  # compacted away, its last offset kept
    ([data(0, 1, 7), data(2, 2, 8), marker(3, 7, "abort")], 0, 2, True),  # its marker lies behind the LSO
    ([data(0, 1, 7), data(2, 2, 8)], 0, 2, None),
    ([data(0, 1, 7), marker(2, 7, "abort"), data(3, 3, 7), marker(4, 7, "commit")], 0, 5, False),
    ([data(0, 1, 7), marker(2, 8, "commit"), marker(3, 7, "abort")], 0, 4, True),
    ([], 3, 9, None),
)
def test_markers_and_aborted_records_are_nothing_to_read(
    batches: list[RecordBatch], offset: int, lso: int, expected: bool | None
) -> None:
    assert nothing_to_read(batches, offset, lso) is expected


class Log:
    """The headers of one partition's batches, as its leader reports them."""

    def __init__(self, *batches: RecordBatch) -> None:
        self.lines = batches

    def batch_headers(self, partition: TopicPartition, start: int, *, most_bytes: int) -> Batches:
        end = self.lines[-1].last + 1
        return Batches(tuple(each for each in self.lines if each.last >= start), end, end)


def test_a_topic_made_again_is_read_again() -> None:
    """Offset and LSO may be the same as before, with records between them where only a marker was."""
    where, log = TopicPartition("t", 0), Log(data(0, 4, 7), marker(5, 7, "commit"))
    known = Markers(log)  # type: ignore[arg-type]

    def found(lso: int) -> frozenset[tuple[TopicPartition, int]]:
        return known.find_only_markers([(where, 5)], {where: Offsets(0, lso, lso, 1)})

    assert found(6) == {(where, 5)}
    log.lines = (data(0, 4), data(5, 5))
    assert found(0) == frozenset(), "it was made again and is empty"
    assert found(6) == frozenset()


BEGUN_MS = 1_795_000_000_000
ADDED_MS, ENDED_MS = BEGUN_MS + 500, BEGUN_MS + 1_000
ONGOING, COMMITTED = TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT
OFFSETS = TopicPartitions("__consumer_offsets", (3, 9))
WHY = "it was not polled"


def added(group: str = "g", offset: int = 7, **fields: int) -> AddedOffset:
    return AddedOffset(group, "t", 0, offset, ADDED_MS, 3, 40)._replace(**fields)


def read(*offsets: AddedOffset, marker: str = "", unread: int = 0, log: int = 3) -> AddedOffsets:
    written = offsets or (added(),)
    return newest_offsets(written, (11, 4), log, marker=marker, unread=unread, read_ms=ENDED_MS)


def record(
    state: TransactionState = ONGOING, named: tuple[TopicPartitions, ...] | None = (), epoch: int = 4
) -> TransactionRecord:
    updated_ms = BEGUN_MS if state is ONGOING else ENDED_MS
    return TransactionRecord("a", state, 11, epoch, 60_000, named, updated_ms, BEGUN_MS)


def of(transaction: TransactionRecord, *parts: AddedOffsets) -> TransactionOffsets:
    return offsets_of(transaction, parts, lambda: WHY)


def test_the_newest_offset_of_each_group_and_partition_counts() -> None:
    written = [added("b"), added(offset=1), added(partition=1, offset=5), added(offset=2, log_offset=44)]
    found = read(*written).offsets
    places = [(each.group, each.partition, each.offset) for each in found]
    assert places == [("b", 0, 7), ("g", 0, 2), ("g", 1, 5)]
    assert unpack_offsets(pack_offsets(found)) == found


@cases(
    (record(), read(), True),
    # The epoch is another one: an earlier transaction, of version 2.
    (record(epoch=5), read(), False),
    # It was added before this one began, or belongs to one whose end was read.
    (record(), read(added(at_ms=BEGUN_MS - 1)), False),
    (record(), read(marker="commit"), False),
    (record(), read()._replace(producer_id=12), False),
    (record(COMMITTED), read(marker="commit"), True),
    (record(TransactionState.PREPARE_COMMIT), read(marker="commit"), True),
    # The end has raised the epoch.
    (record(COMMITTED, epoch=5), read(marker="commit"), True),
    (record(COMMITTED, epoch=6), read(marker="commit"), False),
    (record(COMMITTED), read(marker="abort"), False),
    (record(TransactionState.COMPLETE_ABORT), read(marker="abort"), True),
    # It was added after this one ended: by one that the tail has not read yet.
    (record(COMMITTED), read(added(at_ms=ENDED_MS + 1)), False),
    (record()._replace(started_ms=None), read(), False),
)
def test_offsets_are_of_the_transaction_whose_epoch_time_and_end_they_fit(
    transaction: TransactionRecord, part: AddedOffsets, own: bool
) -> None:
    assert bool(of(transaction, part).offsets) is own


def test_all_that_an_open_transaction_names_was_read() -> None:
    found = of(record(named=(OFFSETS,)), read(), read(added("h", log_partition=9), log=9))
    assert (found.observation, found.missing, found.read_ms) == (Observation.COMPLETE, (), ENDED_MS)
    assert [each.group for each in found.offsets] == ["g", "h"]
    idle = record(TransactionState.EMPTY, None)
    for names_none in record(named=()), record(named=(TopicPartitions("t", (0,)),)), idle:
        assert of(names_none) == NOTHING_ADDED


@cases(
    (record(named=(OFFSETS,)), [read()], Observation.PARTIAL, f"__consumer_offsets-9: {WHY}"),
    (record(named=(TopicPartitions(OFFSETS.topic, (3,)),)), [], Observation.NONE, WHY),
    (record(named=None), [], Observation.NONE, "was not read"),
    (record(), [read(unread=20)], Observation.PARTIAL, "20 records before its end are not read yet"),
    (record(COMMITTED), [], Observation.NONE, f"lists no partitions; {WHY}"),
    (record(COMMITTED), [read()], Observation.PARTIAL, "not up to its marker"),
    (record(TransactionState.PREPARE_COMMIT), [read()], Observation.PARTIAL, "not up to its marker"),
    (
        record(COMMITTED),
        [read(*(added(partition=n) for n in range(MOST_OFFSETS + 2)), marker="commit")],
        Observation.PARTIAL,
        "500 of 502 offsets are kept",
    ),
)
def test_what_is_not_known_is_named(
    transaction: TransactionRecord, parts: list[AddedOffsets], observation: Observation, words: str
) -> None:
    found = of(transaction, *parts)
    (why,) = found.missing
    assert (found.observation, bool(found.offsets)) == (observation, bool(parts))
    assert words in why
