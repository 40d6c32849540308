"""Proves what two reports of an id and the markers between them show, and that no more is claimed."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from fenceline.decode.record_batches import RecordBatch
from fenceline.facts import (
    NOT_FROM_LOG,
    NOT_REPORTED,
    Confidence,
    Tombstone,
    TopicPartition,
    TopicPartitions,
    TransactionRecord,
    TransactionState,
    TransitionKind,
)
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.aggregate import fold_inferred
from fenceline.kafka.fold.folded import Folded, Prior
from fenceline.kafka.fold.marker_history import EndMarker, end_marker, infer_records
from tests.cases import cases

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
_NAMES = {
    "empty": TransactionState.EMPTY,
    "ongoing": TransactionState.ONGOING,
    "committing": TransactionState.PREPARE_COMMIT,
    "aborting": TransactionState.PREPARE_ABORT,
    "committed": TransactionState.COMPLETE_COMMIT,
    "aborted": TransactionState.COMPLETE_ABORT,
}


def report(
    state: str,
    started_ms: int | None = 1_000,
    epoch: int = 3,
    at_ms: int = 2_000,
    pid: int = 7,
    version: int = 0,
) -> TransactionRecord:
    partitions = (TopicPartitions("orders", (0, 1)),)
    return TransactionRecord("pay", _NAMES[state], pid, epoch, 60_000, partitions, at_ms, started_ms, version)


def marker(end: str, at_ms: int, epoch: int = 3, where: TopicPartition = HERE, pid: int = 7) -> EndMarker:
    return EndMarker(where, at_ms, pid, epoch, end == "commit", at_ms)


#: Reports of a transaction that is open, of the next one, of one that is done, of that one's end later, and
#: of the id initialised again.
OPEN, NEXT, DONE = report("ongoing"), report("ongoing", 6_000), report("committed")
LATER, ANEW = report("committed", at_ms=5_000), report("empty", None, 4)


class Between(NamedTuple):
    """Two reports, the markers between, and the transitions: kind, confidence, instant, open for."""

    last: TransactionRecord | None
    now: TransactionRecord | Tombstone
    markers: list[EndMarker]
    transitions: list[str]


CASES = {
    "a first report is a baseline": Between(None, OPEN, [], ["baseline certain"]),
    "a list alone has no epoch": Between(DONE, report("ongoing", 3_000, NOT_REPORTED), [], []),
    "an idle id begins at the instant that its coordinator reports": Between(
        DONE, report("ongoing", 2_500, at_ms=9_000), [], ["begin certain 2500"]
    ),
    "the report itself names the end": Between(OPEN, LATER, [], ["commit certain 5000 4000"]),
    "a marker has the instant": Between(OPEN, LATER, [marker("commit", 4_200)], ["commit certain 4200 3200"]),
    "a client's abort is probable": Between(
        OPEN, report("aborted", at_ms=5_000), [], ["client_abort probable 5000 4000"]
    ),
    "the next transaction is open, and a marker tells how the first ended": Between(
        OPEN, NEXT, [marker("commit", 5_900)], ["commit probable 5900 4900", "begin certain 6000"]
    ),
    "without a marker no end is claimed": Between(OPEN, NEXT, [], ["begin ambiguous 6000"]),
    "a marker before its begin is another's": Between(
        OPEN, NEXT, [marker("abort", 900)], ["begin ambiguous 6000"]
    ),
    "another producer's marker is no end": Between(
        OPEN, NEXT, [marker("commit", 5_000, pid=8)], ["begin ambiguous 6000"]
    ),
    "a marker of the open transaction's own is not taken for an earlier one": Between(
        DONE, NEXT, [marker("commit", 6_500)], ["begin certain 6000"]
    ),
    "two partitions of one transaction are one end": Between(
        OPEN,
        ANEW,
        [marker("commit", 5_000), marker("commit", 5_004, where=THERE)],
        ["commit probable 5000 4000", "reinit probable 2000"],
    ),
    "transactions between two reports count as far as markers show them": Between(
        OPEN,
        ANEW,
        [marker("commit", 5_000), marker("abort", 5_500)],
        [
            "commit probable 5000 4000",
            "begin probable 5500",
            "client_abort probable 5500 None",
            "reinit probable 2000",
        ],
    ),
    "one that began and ended between reports": Between(
        DONE,
        report("committed", 3_000, at_ms=5_000),
        [marker("commit", 3_400)],
        ["begin certain 3000", "commit certain 3400 400"],
    ),
    "a marker that was read late ends no other transaction": Between(
        DONE, NEXT, [marker("commit", 2_100)], ["begin certain 6000"]
    ),
    "an abort of nothing begins nothing for certain": Between(
        report("committed", version=2),
        report("aborted", 3_000, 4, 5_000),
        [],
        ["begin probable 3000", "abort ambiguous 5000 2000"],
    ),
    "a marker of an abort has no instant of a commit": Between(
        OPEN, LATER, [marker("abort", 1_100)], ["commit certain 5000 4000"]
    ),
    "a transaction at the last epoch ends once": Between(
        report("committed", epoch=32_766, version=2),
        report("aborted", 3_000, 0, 5_000, pid=8),
        [marker("abort", 3_400, 32_767)],
        ["begin probable 3000", "abort ambiguous 3400 400"],
    ),
    "version 2 raises the epoch with its commit": Between(
        report("ongoing", version=2),
        report("ongoing", 6_000, 4, version=2),
        [marker("commit", 5_000, 4)],
        ["commit probable 5000 4000", "begin certain 6000"],
    ),
    "an abort with a raised epoch may be anybody's": Between(
        report("ongoing", version=NOT_REPORTED),
        report("aborted", epoch=4, at_ms=5_000),
        [],
        ["takeover ambiguous 5000 4000"],
    ),
    "what is being ended ends as decided": Between(report("committing"), NEXT, [], ["begin certain 6000"]),
    "partitions left while markers are written are no news": Between(
        report("committing"), report("committing", at_ms=3_000), [], []
    ),
    "a forgotten id": Between(DONE, Tombstone("pay"), [], ["expiry probable 2000"]),
}


@pytest.mark.parametrize("name", CASES)
def test_two_reports_and_the_markers_between_them(name: str) -> None:
    case = CASES[name]
    assert transitions(case.last, case.now, case.markers) == case.transitions


def transitions(
    last: TransactionRecord | None, now: TransactionRecord | Tombstone, markers: Sequence[EndMarker]
) -> list[str]:
    folded = Folded()
    prior = Prior(last and last.state, last)
    fold_inferred(folded, b"\0\0\0\0pay", "pay", prior, infer_records(last, now, markers), 100)
    rings = [newest.packed for newest in folded.newest.values()]
    made = [each for ring in rings for each in transition_ring.unpack_ring(ring, NOT_FROM_LOG)][::-1]
    ends = {TransitionKind.COMMIT, TransitionKind.CLIENT_ABORT, TransitionKind.TAKEOVER, TransitionKind.ABORT}
    return [
        f"{each.kind} {each.confidence}"
        + (f" {each.at_ms}" if each.kind is not TransitionKind.BASELINE else "")
        + (f" {each.open_ms}" if each.kind in ends else "")
        for each in made
    ]


@cases(
    ([marker("abort", 5_000)], 8_000),
    ([marker("abort", 5_000), marker("abort", 5_040, where=THERE)], 5_040),
)
def test_an_abort_is_complete_with_its_last_marker_or_before_the_next_report(
    read: list[EndMarker], completed_ms: int
) -> None:
    inferred = infer_records(report("ongoing"), report("ongoing", 6_000, at_ms=8_000), read)
    folded = Folded()
    prior = Prior(TransactionState.ONGOING, report("ongoing"))
    fold_inferred(folded, b"\0\0\0\0pay", "pay", prior, inferred, 100)
    (abort,) = (each.transition for each in folded.notable.values())
    assert (abort.at_ms, abort.confidence) == (5_000, Confidence.PROBABLE)
    assert abort.completed_ms == completed_ms


def test_nothing_is_surer_than_a_report() -> None:
    for last in "ongoing", "committed", "aborted", "empty":
        for now in _NAMES:
            for end in "commit", "abort":
                found = transitions(report(last), report(now, 6_000, 4, 9_000), [marker(end, 5_000, 4)])
                certain = [line for line in found if Confidence.CERTAIN.value in line]
                assert all(line.split()[0] in ("begin", "commit") for line in certain), (last, now, found)


def test_a_batch_is_a_marker_or_none() -> None:
    control = RecordBatch(9, 9, 7, 3, transactional=True, marker="commit", records=1, max_timestamp_ms=5)
    assert end_marker(HERE, control) == EndMarker(HERE, 9, 7, 3, True, 5)
    assert end_marker(HERE, control._replace(marker="")) is None
