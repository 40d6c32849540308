"""Proves what is said of records: the fate of an offset where answers are partial, its readers, its sequence;
who wrote some batches; and what a commit has lost to abort markers before it, and whose a marker is."""

from fenceline.decode.record_batches import BatchWriters, RecordBatch, SequenceStep, count_writers
from fenceline.facts import TopicPartition, Transition, TransitionKind
from fenceline.kafka.partitions import ProducerState
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of, is_visible
from fenceline.losses.aborted_commits import CommittedTransaction, end_of, lost_before_commit
from fenceline.text import (
    explain_break,
    explain_fate,
    explain_progress,
    explain_readers,
    explain_sequence,
    explain_sequences,
    plain_text,
)
from tests.cases import cases
from tests.unit.factories import transition_of


def data(first: int, last: int, sequence: int = 0, *, producer: int = 7, epoch: int = 0) -> RecordBatch:
    return RecordBatch(first, last, producer, epoch, True, "", last - first + 1, base_sequence=sequence)


def marker(at: int, kind: str, *, producer: int = 7) -> RecordBatch:
    return RecordBatch(at, at, producer, 0, True, kind, 1, max_timestamp_ms=1_000)


def look(offset: int, *batches: RecordBatch, **fields: object) -> OffsetLook:
    read_to = batches[-1].last + 1 if batches else offset
    known: dict[str, object] = {"read_to": read_to, "batches": batches, **fields}
    return OffsetLook(offset, 0, 100, 100, **known)  # type: ignore[arg-type]


@cases(
    (look(3, data(2, 4), marker(5, "commit"), aborted=()), RecordFate.COMMITTED),
    (look(3, data(2, 4), aborted=[(7, 2)]), RecordFate.ABORTED),
    # Another producer's aborted transaction, and one of the same producer that began later.
    (look(3, data(2, 4), aborted=[(8, 2), (7, 9)]), RecordFate.COMMITTED),
    # Behind the LSO the marker decides; without one what the leader says, or the end of the log.
    (look(3, data(2, 4), marker(5, "abort")), RecordFate.ABORTED),
    (look(3, data(2, 4), marker(5, "commit", producer=8), open_from={7: 2}), RecordFate.OPEN),
    (look(3, data(2, 4), open_from={7: 9}), RecordFate.UNKNOWN),
    (look(3, data(2, 4)), RecordFate.UNKNOWN),
    (look(97, data(96, 99), open_from={}), RecordFate.OPEN),
    (look(3, data(2, 4), held=[2, 4], aborted=()), RecordFate.COMPACTED),
    (look(3, data(4, 4)), RecordFate.COMPACTED),
    (look(3), RecordFate.UNKNOWN),
    (look(3, data(2, 4)._replace(records=0)), RecordFate.COMPACTED),
    (look(5, marker(5, "commit")), RecordFate.MARKER),
    (look(3, data(2, 4)._replace(transactional=False)), RecordFate.PLAIN),
    (look(100), RecordFate.NOT_WRITTEN),
)
def test_the_fate_follows_from_what_was_read_alone(seen: OffsetLook, fate: RecordFate) -> None:
    assert fate_of(seen) is fate
    assert plain_text(explain_fate(seen), now_ms=0)
    explain_readers(seen)


def test_readers_of_what_is_not_known_are_not_known_and_a_newer_epoch_before_shows_a_stale_one() -> None:
    unknown = look(3, data(2, 4))
    assert (is_visible(unknown, committed=True), is_visible(unknown, committed=False)) == (None, True)
    behind = OffsetLook(3, 0, 2, 100, [data(2, 4)], 5)
    assert is_visible(behind, committed=True) is False
    newer = data(3, 4, 0, epoch=2)
    assert look(5, data(5, 6, 0), before=[newer]).newer_epoch == newer
    assert look(5, data(5, 6, 0), before=[data(3, 4, 0)]).newer_epoch is None


@cases(
    (None, data(5, 6, 0), "the first of its epoch"),
    (None, data(5, 6, 9), "was not read"),
    (data(3, 4, 7), data(5, 6, 9), "the next one"),
    (data(3, 4, 2**31 - 2), data(5, 6, 0), "the next one"),
    (data(3, 4, 7), data(5, 6, 12), "compacted"),
    (data(3, 4, 7), data(5, 6, 7), "may have stored a resend"),
    (data(3, 4, 7, epoch=1), data(5, 6, 0), "the first of its epoch"),
    (data(3, 4, 7, producer=8), data(5, 6, 9), "was not read"),
    (None, data(5, 6, -1), ""),
)
def test_a_sequence_is_the_next_one_or_the_reason_is_named(
    before: RecordBatch | None, batch: RecordBatch, words: str
) -> None:
    said = explain_sequence(look(5, batch, before=[before] if before else ()))
    assert words in said
    assert bool(said) == bool(words)


def batch(
    first: int, records: int, producer_id: int = -1, *, is_open: bool = False, marker: str = ""
) -> RecordBatch:
    return RecordBatch(first, first + records - 1, producer_id, 0, is_open, marker, records)


def test_records_are_counted_by_their_kind_of_producer() -> None:
    of_transaction = batch(10, 3, 7, is_open=True), batch(13, 1, 7, is_open=True, marker="commit")
    seen = count_writers([*of_transaction, batch(14, 2, 8), batch(16, 5, 9), batch(21, 4), batch(25, 1, 8)])
    assert seen == BatchWriters(10, 26, 3, 8, 4, ((9, 5), (8, 3)))
    assert count_writers([]) == BatchWriters(0, 0)


NEXT, GAP, REPEAT = SequenceStep


@cases(
    ([0, 1, 2], []),
    ([2**31 - 2, 2**31 - 1, 0, 1], []),
    ([0, 1, 1, 2], [(2, 1, 1, REPEAT)]),
    ([5, 0], [(1, 5, 0, REPEAT)]),
    ([0, 3, 4], [(1, 0, 3, GAP)]),
    ([2**31 - 1, 2], [(1, 2**31 - 1, 2, GAP)]),
    ([1, 2**31 - 1], [(1, 1, 2**31 - 1, REPEAT)]),
)
def test_a_batch_that_does_not_follow_is_named(
    sequences: list[int], steps: list[tuple[int, int, int, SequenceStep]]
) -> None:
    seen = count_writers([numbered(at, sequence) for at, sequence in enumerate(sequences)])
    assert (seen.following, seen.broken) == (len(sequences) - 1, len(steps))
    assert [(each.offset, each.last, each.found, each.step) for each in seen.breaks] == steps
    assert bool(explain_sequences(seen))
    assert all(f"Offset {offset}:" in explain_break(seen.breaks[n]) for n, (offset, *_) in enumerate(steps))


def test_producers_epochs_markers_and_plain_records_are_told_apart() -> None:
    batches = [
        numbered(0, 7),
        numbered(1, 0, producer_id=2),
        numbered(2, 0, epoch=1),
        numbered(3, 8),
        batch(4, 1, 1, is_open=True, marker="commit"),
        batch(5, 1),
        numbered(6, 9),
    ]
    seen = count_writers(batches)
    assert (seen.following, seen.broken) == (2, 0)
    assert explain_sequences(count_writers(batches[:3])) == ""
    # Of many breaks the first are named, and all counted.
    many = count_writers([numbered(at, 0) for at in range(100)])
    assert (many.broken, len(many.breaks)) == (99, 20)


def numbered(at: int, sequence: int, *, producer_id: int = 1, epoch: int = 0) -> RecordBatch:
    return RecordBatch(at, at, producer_id, epoch, False, "", 1, base_sequence=sequence)


@cases(
    (None, (0, 4), "not known then"),
    ((0, 4), (0, 4), "nothing new"),
    ((0, 4), (0, 1_304), "+1,300"),
    ((0, -1), (0, 2), "+3"),
    ((0, 2**31 - 1), (0, 4), "+5"),
    ((0, 4), (1, -1), "epoch 0 → 1"),
    ((0, 9), (0, 4), "went back from 9: its state was lost"),
)
def test_progress_between_two_answers_is_shown(
    before: tuple[int, int] | None, now: tuple[int, int], shown: str
) -> None:
    states = [ProducerState(1, *each, 0, None, None) if each else None for each in (before, now)]
    assert states[1]
    assert explain_progress(states[0], states[1]) == shown


P0 = TopicPartition("payments", 0)
OURS, OTHERS, EPOCH = 7, 8, 4
BEGUN_MS, COMMITTED_MS = 1_000_000, 1_060_000
WITH_OWN_EPOCH = CommittedTransaction(OURS, EPOCH, BEGUN_MS, COMMITTED_MS, own_epoch=True)


def log(text: str) -> list[RecordBatch]:
    """Read batches from text: `x2@0` two records at offset 0, `abort@5+20` a marker 20 s after the beginning.

    A leading `o` is another producer's, `e` an earlier epoch's.
    """
    return [_batch(word) for word in text.split()]


def _batch(word: str) -> RecordBatch:
    what, _, at = word.partition("@")
    offset, _, seconds = at.partition("+")
    producer = OTHERS if what.startswith("o") else OURS
    epoch = EPOCH - 1 if what.startswith("e") else EPOCH
    marker = next((each for each in ("abort", "commit") if what.endswith(each)), "")
    records = 1 if marker else int(what[-1])
    first = int(offset)
    at_ms = BEGUN_MS + int(float(seconds or 0) * 1_000)
    return RecordBatch(first, first + records - 1, producer, epoch, True, marker, records, at_ms)


@cases(
    ("x3@0 abort@3+20 x2@4 commit@6+60", (0, 2, 3), "what came before the marker is lost"),
    ("x3@0 abort@3+20 commit@4+60", (0, 2, 3), "nothing came behind it"),
    ("x3@0 commit@3+60", (None, None, 0), "no marker"),
    ("abort@0+20 x3@1 commit@4+60", (None, None, 0), "a marker before any record"),
    ("x3@0 abort@3+20 abort@4+21 commit@5+60", (0, 2, 3), "the second marker takes no more"),
    ("x3@0 abort@3+20 x2@4 abort@6+30 x1@7 commit@8+60", (0, 5, 5), "each marker takes its part"),
    ("x3@0 oabort@3+20 commit@4+60", (None, None, 0), "the marker is another producer's"),
    ("x2@0 o5@2 x1@7 abort@8+20 ocommit@9+30 commit@10+60", (0, 7, 3), "others write between"),
    ("e3@0 abort@3+-1 x2@4 commit@6+60", (None, None, 0), "the abort before is of an earlier epoch"),
    ("e3@0 commit@3+-1 x2@4 abort@6+9 commit@7+60", (4, 5, 2), "the commit before is of another"),
    ("x3@0 abort@3+20 x2@4", None, "its commit marker is not read yet"),
    ("x3@0 commit@3+60 x2@4 abort@6+70", (None, None, 0), "what follows is the next transaction's"),
)
def test_lost_before_commit(text: str, expected: tuple[int | None, int | None, int] | None, why: str) -> None:
    found = lost_before_commit(P0, log(text), WITH_OWN_EPOCH)
    told = None if found is None else (found.first, found.last, found.records)
    assert told == expected, why


@cases(
    ("x3@0 abort@3+-1 x2@4 commit@6+60", None, 0, "it is the abort of the one before"),
    ("x3@0 abort@3+1 x2@4 commit@6+60", None, 3, "it was written after the beginning"),
    ("x3@0 abort@3+-1 x2@4 abort@6+20 commit@7+60", None, 2, "the second marker is foreign"),
    ("x3@0 abort@3+7 x2@4 commit@6+68", None, 0, "the leader's clock is ahead by 8 s: before it"),
    ("x3@0 abort@3+9 x2@4 commit@6+68", None, 3, "the same: after it"),
    ("x3@0 abort@3+-7 x2@4 commit@6+52", None, 3, "the leader's clock is behind by 8 s: after it"),
    ("x3@0 abort@3+-9 x2@4 commit@6+52", None, 0, "the same: before it"),
    ("x3@0 abort@3+0 x2@4 commit@6+62", 0, 3, "its records were seen open before the marker"),
    ("x3@0 abort@3+0 x2@4 commit@6+62", 4, 0, "its records were seen open behind the marker only"),
    ("x3@0 commit@3+-1 x2@4 commit@6+60", None, 0, "the first commit is of the one before"),
)
def test_a_marker_may_be_of_an_earlier_transaction_of_the_same_epoch(
    text: str, first_offset: int | None, expected: int, why: str
) -> None:
    found = lost_before_commit(P0, log(text), WITH_OWN_EPOCH._replace(own_epoch=False), first_offset)
    assert found is not None
    assert found.records == expected, why


def transition(kind: TransitionKind, at_s: float, open_s: float | None = None) -> Transition:
    at_ms, open_ms = BEGUN_MS + int(at_s * 1_000), None if open_s is None else int(open_s * 1_000)
    return transition_of(
        kind, at_ms=at_ms, producer_id=OURS, producer_epoch=EPOCH, open_ms=open_ms, completed_ms=at_ms + 5
    )


COMMIT = transition(TransitionKind.COMMIT, 60, 60)


def test_the_end_is_that_of_the_very_transaction() -> None:
    later, begin = transition(TransitionKind.COMMIT, 90, 10), transition(TransitionKind.BEGIN, 0)
    assert end_of([later, COMMIT, begin], BEGUN_MS) == COMMIT
    assert end_of([later, begin], BEGUN_MS) is None
    aborted = transition(TransitionKind.TIMEOUT, 30, 30)
    assert end_of([aborted, begin], BEGUN_MS) == aborted
