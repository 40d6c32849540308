"""Proves what is said of an offset: its fate where answers are partial, its readers, its sequence."""

import pytest

from fenceline.decode.record_batches import RecordBatch
from fenceline.kafka.record_fate import OffsetLook, RecordFate, fate_of, is_visible
from fenceline.text.record_fates import explain_fate, explain_readers, explain_sequence
from fenceline.text.sentences import plain_text


def data(first: int, last: int, sequence: int = 0, *, producer: int = 7, epoch: int = 0) -> RecordBatch:
    return RecordBatch(first, last, producer, epoch, True, "", last - first + 1, base_sequence=sequence)


def marker(at: int, kind: str, *, producer: int = 7) -> RecordBatch:
    return RecordBatch(at, at, producer, 0, True, kind, 1, max_timestamp_ms=1_000)


def look(offset: int, *batches: RecordBatch, **fields: object) -> OffsetLook:
    read_to = batches[-1].last + 1 if batches else offset
    known: dict[str, object] = {"read_to": read_to, "batches": batches, **fields}
    return OffsetLook(offset, 0, 100, 100, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "fate"),
    [
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
    ],
)
def test_the_fate_follows_from_what_was_read_alone(seen: OffsetLook, fate: RecordFate) -> None:
    assert fate_of(seen) is fate
    assert plain_text(explain_fate(seen), now_ms=0)
    explain_readers(seen)


def test_readers_of_what_is_not_known_are_not_known() -> None:
    unknown = look(3, data(2, 4))
    assert (is_visible(unknown, committed=True), is_visible(unknown, committed=False)) == (None, True)
    behind = OffsetLook(3, 0, 2, 100, [data(2, 4)], 5)
    assert is_visible(behind, committed=True) is False


@pytest.mark.parametrize(
    ("before", "batch", "words"),
    [
        (None, data(5, 6, 0), "the first of its epoch"),
        (None, data(5, 6, 9), "was not read"),
        (data(3, 4, 7), data(5, 6, 9), "the next one"),
        (data(3, 4, 2**31 - 2), data(5, 6, 0), "the next one"),
        (data(3, 4, 7), data(5, 6, 12), "compacted"),
        (data(3, 4, 7), data(5, 6, 7), "may have stored a resend"),
        (data(3, 4, 7, epoch=1), data(5, 6, 0), "the first of its epoch"),
        (data(3, 4, 7, producer=8), data(5, 6, 9), "was not read"),
        (None, data(5, 6, -1), ""),
    ],
)
def test_a_sequence_is_the_next_one_or_the_reason_is_named(
    before: RecordBatch | None, batch: RecordBatch, words: str
) -> None:
    said = explain_sequence(look(5, batch, before=[before] if before else ()))
    assert words in said
    assert bool(said) == bool(words)


def test_a_batch_before_of_a_newer_epoch_shows_a_stale_one() -> None:
    stale = look(5, data(5, 6, 0), before=[data(3, 4, 0, epoch=2)])
    assert stale.newer_epoch == data(3, 4, 0, epoch=2)
    assert look(5, data(5, 6, 0), before=[data(3, 4, 0)]).newer_epoch is None
