"""Proves what an audit concludes from headers, input ranges and a ledger, or from a comparison by keys; and
which ranges a replay takes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.audit.continuing import count_offsets, extend_manifest, next_positions, ranges_without
from fenceline.audit.judging import (
    BatchInput,
    Judged,
    Output,
    OutputRange,
    foreign_obstacles,
    foreign_runs,
    index_output,
    judge_again,
    judge_batch,
    judge_control,
    judge_unknown,
    pending_batch,
    runs_again,
)
from fenceline.audit.keys import ComparedTopics, KeyTotals, compared_obstacles
from fenceline.audit.ledgers import LedgerIndex
from fenceline.audit.manifest import (
    AuditedPosition,
    AuditedRange,
    AuditManifest,
    AuditMode,
    AuditVerdict,
    ObstacleKind,
    read_audit,
    write_audit,
)
from fenceline.audit.runs import InputFold, ReadRange, RunFold, read_ranges
from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets
from fenceline.spark.records import (
    Broken,
    Damage,
    Decided,
    Decision,
    DecisionOutcome,
    Done,
    LedgerState,
    SinkTransaction,
)
from tests.cases import cases

OUT = TopicPartition("out", 0)
EMPTY = AuditManifest("test", "orders", AuditMode.COUNTS, 0, 0)
READ = BatchInput(4, (AuditedRange("in", 0, 10, 14),))


def data(first: int, records: int, producer: int, *, transactional: bool = True, ms: int = 50) -> RecordBatch:
    return RecordBatch(first, first + records - 1, producer, 0, transactional, "", records, ms)


def marker(at: int, producer: int, kind: str = "commit") -> RecordBatch:
    # Since transaction version 2 a marker has the next epoch (KIP-890).
    return RecordBatch(at, at, producer, 1, True, kind, 1)


def decision(
    batch_id: int, producer: int, records: int, *, round_: int = 0, decided: Decided = Decided.PREPARED
) -> Decision:
    transaction = SinkTransaction(0, 0, "id", producer, 0, (OUT,), records, 0, 60_000)
    return Decision(batch_id, round_, decided, "driver", 100, "l", "q", "r", 1, (transaction,))


def index(*decisions: Decision, open_batches: Sequence[int] = ()) -> LedgerIndex:
    done = tuple(
        Done(each.batch_id, each.round, DecisionOutcome.COMMITTED, 0, "driver")
        for each in decisions
        if each.batch_id not in open_batches
    )
    broken = Broken("ledger.json", Damage.MISSING, "")
    return LedgerIndex(LedgerState("/c", broken, decisions=decisions, done=done))


def output(
    *batches: RecordBatch, asked: int = 0, start: int = 0, lso: int = 1_000, recreated: bool = False
) -> Output:
    fold = RunFold(OUT, max(asked, start), lso)
    fold.take_batches(batches)
    return index_output({OUT: OutputRange(asked, start, lso, recreated)}, [fold.finish()])


def judge(found: Output, *, said: int = 4, read: BatchInput = READ, one_to_one: bool = False) -> Judged:
    return judge_batch(decision(7, 1, said), read, found, (), one_to_one=one_to_one)


def kinds(judged: Judged) -> list[ObstacleKind]:
    return [each.kind for each in judged.obstacles]


def test_headers_become_runs() -> None:
    fold = RunFold(OUT, 0, 100, {9: 3})
    fold.take_batches(
        [data(0, 2, 1), data(2, 1, 9), marker(3, 9), data(4, 3, 1), marker(7, 1), data(8, 1, 2)]
    )
    fold.take_batches([marker(9, 2, "abort"), data(10, 2, -1, transactional=False), data(12, 1, 3)])
    found = fold.finish()
    told = [(run.producer_id, run.first, run.last, run.records, run.end, run.marker) for run in found.runs]
    assert told == [
        (1, 0, 6, 5, "commit", 7), (2, 8, 8, 1, "abort", 9), (-1, 10, 11, 2, "", None),
        (3, 12, 12, 1, "", None),
    ]  # fmt: skip
    assert [run.is_committed for run in found.runs] == [True, False, True, False]
    assert found.hole is None


@cases([data(0, 2, 1), data(3, 1, 1)], [RecordBatch(0, 2, 1, 0, True, "", 1)], [data(2, 1, 1)])
def test_a_hole_is_compaction(batches: list[RecordBatch]) -> None:
    fold = RunFold(OUT, 0, 100)
    fold.take_batches(batches)
    assert fold.finish().hole is not None


@pytest.mark.parametrize(("committed_only", "counts"), [(True, [2, 3]), (False, [4, 5])])
def test_input_is_counted_by_batch(committed_only: bool, counts: list[int]) -> None:
    fold = InputFold(OUT, [ReadRange(0, 2, 6), ReadRange(1, 6, 12)], committed_only=committed_only)
    # The first two offsets lie before the first range; a batch lies in both.
    fold.take_batches([data(0, 4, -1, transactional=False), data(4, 4, 1), marker(8, 1, "abort")])
    assert not fold.is_complete(9)
    fold.take_batches([data(9, 5, 2), marker(14, 2)])
    assert fold.is_complete(15)
    assert [each.records for each in fold.finish()] == counts


def test_ranges_lie_between_positions_and_a_compacted_batch_in_two_of_them_is_not_counted() -> None:
    new = TopicPartition("in", 1)
    found = read_ranges(3, {OUT: 5}, {OUT: 9, new: 2, TopicPartition("in", 2): 0})
    assert found == {OUT: ReadRange(3, 5, 9), new: ReadRange(3, 0, 2)}
    fold = InputFold(OUT, [ReadRange(0, 0, 2), ReadRange(1, 2, 4)], committed_only=True)
    fold.take_batches([RecordBatch(0, 3, -1, -1, False, "", 2)])
    assert [each.records for each in fold.finish()] == [None, None]


def test_a_whole_batch_is_proved_and_aborted_records_are_lost_with_their_input() -> None:
    found = judge(output(data(0, 4, 1), marker(4, 1)))
    assert (found.batch.verdict, found.batch.dropped, found.obstacles) == (AuditVerdict.PROVED, 0, ())
    assert [tuple(row) for row in found.rows] == [(7, "out", 0, 4, 4, 4, 0, 0, 4)]
    for there, kind, counts in (
        (4, "abort", (4, 0, 4, 0)),
        (3, "commit", (3, 3, 1, 0)),
        (6, "commit", (6, 6, 0, 2)),
    ):
        batch = judge(output(data(0, there, 1), marker(there, 1, kind))).batch
        assert batch.verdict is AuditVerdict.VIOLATED
        assert (batch.written, batch.committed, batch.missing, batch.duplicated) == counts
        assert (batch.losses == READ.ranges) == (kind == "abort")


@cases(
    (output(start=5), ObstacleKind.RETENTION),
    (output(recreated=True), ObstacleKind.TOPIC_RECREATED),
    (output(data(0, 1, 1), data(3, 1, 1), marker(4, 1)), ObstacleKind.COMPACTED),
)
def test_what_is_gone_is_named_and_no_loss(found: Output, kind: ObstacleKind) -> None:
    judged = judge(found)
    assert kinds(judged) == [kind]
    assert (judged.batch.verdict, judged.batch.missing) == (AuditVerdict.UNPROVED, None)


def test_records_behind_the_last_stable_offset_or_without_a_marker_yet_are_no_loss() -> None:
    """A decision is carried out once its coordinator has it: the marker comes after it."""
    for batches, lso, counts in (
        ([data(0, 4, 1), marker(4, 1)], 2, (4, 0, 0)),
        ([data(0, 4, 1)], 0, (0, 0, 0)),
    ):
        judged = judge(output(*batches, lso=lso))
        assert kinds(judged) == [ObstacleKind.UNREADABLE]
        assert judged.batch.verdict is AuditVerdict.UNPROVED
        assert (judged.batch.committed, judged.batch.readable, judged.batch.missing) == counts


def test_rows_that_the_query_drops_are_no_loss_where_progress_reports_them_and_else_unknown() -> None:
    found = output(data(0, 3, 1), marker(3, 1))
    for fields, verdict, dropped, missing in (
        ({}, AuditVerdict.UNPROVED, None, 0),
        ({"one_to_one": True}, AuditVerdict.VIOLATED, 0, 1),
        ({"read": READ._replace(dropped=1)}, AuditVerdict.PROVED, 1, 0),
        ({"read": READ._replace(dropped=2)}, AuditVerdict.UNPROVED, None, 0),
    ):
        judged = judge(found, said=3, **fields)
        batch = judged.batch
        assert (batch.verdict, batch.dropped, batch.missing) == (verdict, dropped, missing)
        assert (kinds(judged) == [ObstacleKind.INPUT_UNKNOWN]) == (verdict is AuditVerdict.UNPROVED)
    for one_to_one in (False, True):
        judged = judge(output(data(0, 4, 1), marker(4, 1)), read=BatchInput(None), one_to_one=one_to_one)
        assert judged.batch.verdict is AuditVerdict.UNPROVED, "its input is unknown"


def test_a_round_that_was_aborted_and_is_readable_is_a_duplicate() -> None:
    aborted = decision(7, 2, 4, decided=Decided.ABORTED)
    known = index(aborted, decision(7, 1, 4, round_=1))
    found = output(data(0, 4, 2), marker(4, 2), data(5, 4, 1), marker(9, 1))
    again = runs_again(known, found, 7)
    batch = judge_batch(decision(7, 1, 4), READ, found, again[7], one_to_one=False).batch
    assert (batch.duplicated, batch.duplicates) == (4, (AuditedRange("out", 0, 0, 4),))


def test_settled_batches_end_at_the_first_open_one() -> None:
    known = index(*(decision(batch, batch, 1) for batch in (1, 2, 4)), open_batches=[4])
    assert known.settled(1, [3, 5]) == (1, 2, 3)
    assert known.settled(2, []) == (2,)


def test_others_are_named_from_the_first_run_on() -> None:
    known = index(decision(7, 1, 4))
    before, after = data(0, 1, 8, ms=5), data(6, 1, 9, ms=5)
    found = output(before, marker(1, 8), data(2, 3, 1), marker(5, 1), after, marker(7, 9))
    foreign = foreign_runs(known, found, 50)
    assert [run.producer_id for run in foreign] == [9]
    assert [run.producer_id for run in foreign_runs(known, found, 5)] == [8, 9]
    (obstacle,) = foreign_obstacles(foreign, {9: ("a-0123abcd-p0", "a-0123abcd")}, "mine")
    assert (obstacle.kind, obstacle.where) == (ObstacleKind.SHARED_OUTPUT, "out")
    assert foreign_obstacles(foreign, {9: ("mine-p0", "mine")}, "mine") == ()
    (obstacle,) = foreign_obstacles(foreign, {}, "mine")
    assert (obstacle.kind, obstacle.where) == (ObstacleKind.FOREIGN_RECORDS, "out-0")
    assert "producer id 9" in obstacle.detail


def test_the_next_run_begins_before_what_is_not_audited() -> None:
    known = index(decision(7, 1, 4), decision(8, 2, 1))
    # Batch 7 ends after a record of batch 8, which is to come.
    found = output(data(0, 2, 1), data(2, 1, 2), data(3, 2, 1), marker(5, 1), marker(6, 2), lso=7)
    (position,) = next_positions(known, found, 8, {"out": "id"})
    assert position == AuditedPosition("out", 0, "id", 2, ((1, 5),))
    fold = RunFold(OUT, position.offset, 7, dict(position.spanning))
    fold.take_batches([data(2, 1, 2), data(3, 2, 1), marker(5, 1), marker(6, 2)])
    assert [run.producer_id for run in fold.finish().runs] == [2]
    (position,) = next_positions(known, found, 9, {})
    assert (position.offset, position.spanning) == (7, ())


def proved(batch_id: int) -> Judged:
    good = judge(output(data(0, 4, 1), marker(4, 1))).batch
    return Judged(replace(good, batch_id=batch_id))


def test_a_manifest_sums_up_what_was_audited() -> None:
    first = extend_manifest(EMPTY, [proved(7), proved(8)], [Judged(pending_batch(decision(9, 1, 4)))], ())
    assert (first.first_batch, first.proved_through, first.next_batch, first.input) == (7, 8, 9, 8)
    assert [each.verdict for each in first.batches] == [AuditVerdict.PREPARED, *[AuditVerdict.PROVED] * 2]
    second = extend_manifest(first, [proved(9), judge_control(10)], [], ())
    assert (second.proved_through, second.readable, len(second.batches)) == (10, 12, 4)
    unknown = judge_unknown(11, READ, "/c/ledger")
    third = extend_manifest(second, [unknown, proved(12)], [], ())
    assert (third.proved_through, third.next_batch) == (10, 13)
    assert [each.kind for each in third.obstacles] == [ObstacleKind.LEDGER_MISSING]
    assert read_audit(write_audit(third)) == third


def test_records_that_come_once_more_take_a_proof_back() -> None:
    first = extend_manifest(EMPTY, [proved(7), proved(8)], [], ())
    known = index(decision(8, 1, 4))
    found = output(data(20, 4, 1), marker(24, 1))
    late = judge_again(8, runs_again(known, found, 9)[8], found)
    after = extend_manifest(first, [late], [], ())
    assert (after.verdict, after.proved_through, after.duplicated) == (AuditVerdict.VIOLATED, 7, 4)
    assert after.batches[0].duplicates == (AuditedRange("out", 0, 20, 24),)
    assert after.batches[0].input == 4


@cases(output(data(0, 4, 1), marker(4, 1), lso=2), output(data(0, 4, 1), lso=0), ids=["blocked", "open"])
def test_an_obstacle_of_the_moment_does_not_stay(found: Output) -> None:
    blocked = judge(found)
    first = extend_manifest(EMPTY, [], [blocked], ())
    assert [each.kind for each in first.obstacles] == [ObstacleKind.UNREADABLE]
    assert first.next_batch is None
    second = extend_manifest(first, [proved(7)], [], ())
    assert (second.verdict, second.obstacles) == (AuditVerdict.PROVED, ())


TOTALS = KeyTotals(10, 8, 2, 0, 1, 0, 0)
READABLE, BLOCKED = Offsets(0, 9, 9, 1), Offsets(0, 5, 9, 1)


def topics(now: Offsets = READABLE, **fields: object) -> ComparedTopics:
    return ComparedTopics({OUT: now}, **fields)  # type: ignore[arg-type]


STRANGE = TOTALS._replace(foreign=3)


@cases(
    (topics(), TOTALS, TOTALS, []),
    # What readers do not get yet is not missing.
    (topics(BLOCKED), TOTALS, TOTALS._replace(missing=0), [ObstacleKind.UNREADABLE]),
    # Of compacted topics nothing is missing or duplicated.
    (topics(compacted={"out"}), STRANGE, STRANGE._replace(missing=0, duplicated=0), [ObstacleKind.COMPACTED]),
    # Strange keys count only where the whole input was read.
    (topics(), STRANGE, STRANGE, [ObstacleKind.FOREIGN_RECORDS]),
    (topics(whole=False), STRANGE, STRANGE, []),
    (
        topics(),
        TOTALS._replace(uncertain=1, keyless=1),
        TOTALS._replace(uncertain=1, keyless=1),
        [ObstacleKind.RETENTION, ObstacleKind.KEY_MISSING],
    ),
)
def test_what_is_concluded_of_keys(
    found: ComparedTopics, totals: KeyTotals, concluded: KeyTotals, obstacles: list[ObstacleKind]
) -> None:
    assert found.concluded(totals) == concluded
    assert [obstacle.kind for obstacle in compared_obstacles(found, totals)] == obstacles


RANGES = st.lists(
    st.builds(
        lambda partition, first, length: AuditedRange("in", partition, first, first + length),
        st.integers(0, 1), st.integers(0, 30), st.integers(0, 9),
    ),
    max_size=8,
)  # fmt: skip


def places(ranges: list[AuditedRange]) -> set[tuple[int, int]]:
    return {(each.partition, offset) for each in ranges for offset in range(each.from_offset, each.to_offset)}


@given(RANGES, RANGES)
def test_a_replay_takes_each_offset_once_that_no_list_has(
    wanted: list[AuditedRange], listed: list[AuditedRange]
) -> None:
    found = list(ranges_without(wanted, listed))
    assert places(found) == places(wanted) - places(listed)
    assert count_offsets(found) == len(places(found))
    assert found == sorted(found)
