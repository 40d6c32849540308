"""Open transactions of a producer by numbered cases: what coordinators answer about each, and its verdict."""

from typing import Any

from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, TopicPartition, TopicPartitions, TransactionState
from fenceline.kafka.partitions import (
    PartitionPlace,
    PartitionVerdict,
    Pin,
    ProducerOwners,
    ProducerState,
    VerdictReason,
    grace_ms,
)
from fenceline.kafka.reconcile import Described, NotDescribed, Obstacle

NOW_MS = 1_795_000_000_000
WHERE = TopicPartition("orders", 3)
PRODUCER = ProducerState(7, 4, 11, NOW_MS - 5_000, 2, start_offset=100)
PLACE = PartitionPlace("topic-1", 1, 5, (1, 2))


def lso_blocker(
    verdict: PartitionVerdict = PartitionVerdict.OPEN,
    ground: VerdictReason = VerdictReason.OWNED,
    *,
    first_seen_ms: int = NOW_MS - 1_000,
    prepared_ms: int | None = None,
) -> Pin:
    return Pin(
        *WHERE, 7, 4, 100, 11, NOW_MS - 5_000, 2, first_seen_ms, "gateway", verdict, ground, prepared_ms
    )


HANGING, LATE = PartitionVerdict.HANGING, PartitionVerdict.LATE
OPEN, UNKNOWN = PartitionVerdict.OPEN, PartitionVerdict.UNKNOWN

GRACE = grace_ms()
TIMEOUT_MS = 60_000
OURS = (TopicPartitions("orders", (0, 3)), TopicPartitions("payments", (3,)))
OTHERS = (TopicPartitions("orders", (0, 30)), TopicPartitions("payments", (3,)))


def described(
    state: TransactionState = TransactionState.ONGOING,
    partitions: tuple[TopicPartitions, ...] = OURS,
    *,
    producer_id: int = 7,
    epoch: int = 4,
    timeout_ms: int = TIMEOUT_MS,
) -> Described:
    return Described("gateway", state, producer_id, epoch, timeout_ms, NOW_MS - 9_000_000, partitions)


def not_described(obstacle: Obstacle) -> NotDescribed:
    return NotDescribed(obstacle, "for a reason")


NOBODY: dict[int, str] = {}
GATEWAY = {7: "gateway"}


def owners(
    ids: dict[int, str] = GATEWAY,
    says: Described | NotDescribed | None = None,
    *,
    whole: bool = True,
    may_hide: bool = False,
) -> ProducerOwners:
    return ProducerOwners(ids, {} if says is None else {"gateway": says}, whole, may_hide)


def says(*args: Any, whole: bool = True, may_hide: bool = False, **fields: Any) -> ProducerOwners:
    """Return that its coordinator describes the id so."""
    return owners(says=described(*args, **fields), whole=whole, may_hide=may_hide)


EMPTY, COMPLETE_COMMIT = TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
LONG_AGO = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE - 1)
JUST_IN_TIME = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE)
STUCK = lso_blocker(prepared_ms=NOW_MS - GRACE - 1)
FOR_EVER = TWO_PHASE_COMMIT_TIMEOUT_MS
#: By the verdict and its reason, the cases: what was seen, and what was known of the transaction before.
_CASES: dict[tuple[PartitionVerdict, VerdictReason], dict[str, tuple[ProducerOwners, Pin | None]]] = {
    (OPEN, VerdictReason.OWNED): {
        "1 its coordinator names the partition": (says(), None),
        "2 it is being committed": (says(PREPARE_COMMIT), None),
        "3 it is being aborted": (says(PREPARE_ABORT), None),
        "4 its epoch was raised for the abort of a timeout": (says(PREPARE_ABORT, epoch=5), None),
        "5 protocol 2 raised its epoch since the last end here": (says(epoch=900), None),
        "6 the partition is a later epoch ahead of its coordinator": (says(epoch=3), None),
        "7 hidden ids do not matter where the owner is seen": (says(may_hide=True), None),
        "8 nor does a broker that did not answer": (says(whole=False), None),
        "10 to the last millisecond of its timeout and the coordinator's scan": (says(), JUST_IN_TIME),
        "11 long open by its coordinator's clock, not yet by ours": (
            says(timeout_ms=1),
            lso_blocker(first_seen_ms=NOW_MS - GRACE),
        ),
        "15 past its timeout, but decided a moment ago": (says(PREPARE_ABORT), LONG_AGO),
        "16 decided for as long as the grace": (
            says(PREPARE_ABORT),
            lso_blocker(prepared_ms=NOW_MS - GRACE),
        ),
    },
    (LATE, VerdictReason.PAST_TIMEOUT): {"9 past its timeout and the coordinator's scan": (says(), LONG_AGO)},
    (OPEN, VerdictReason.TWO_PHASE): {
        "12 two-phase commit never times out": (
            says(timeout_ms=FOR_EVER),
            lso_blocker(first_seen_ms=0),
        ),
        "17 nor is it late when it was decided long ago": (says(PREPARE_COMMIT, timeout_ms=FOR_EVER), STUCK),
    },
    (LATE, VerdictReason.STUCK_IN_PREPARE): {
        "13 stuck in PrepareCommit": (says(PREPARE_COMMIT), STUCK),
        "14 stuck in PrepareAbort": (says(PREPARE_ABORT), STUCK),
    },
    (HANGING, VerdictReason.NOT_ITS_PARTITION): {
        "18 its coordinator says Empty": (says(EMPTY, ()), None),
        "19 its coordinator has committed it": (says(COMPLETE_COMMIT, ()), None),
        "20 its coordinator has aborted it": (says(TransactionState.COMPLETE_ABORT, ()), None),
        "21 its coordinator has another transaction open, elsewhere": (says(partitions=OTHERS), None),
        "22 its coordinator has written the marker here, or so it thinks": (
            says(PREPARE_COMMIT, OTHERS),
            None,
        ),
        "23 hidden ids do not matter where the producer id's own id is seen": (
            says(EMPTY, (), may_hide=True),
            None,
        ),
        "24 a completed transaction that still names it (Kafka 3.9) is over": (says(COMPLETE_COMMIT), None),
        "25 two-phase commit hangs as well where nobody owns it": (
            says(EMPTY, (), timeout_ms=FOR_EVER),
            None,
        ),
    },
    (HANGING, VerdictReason.NO_SUCH_PRODUCER): {
        "26 no id has the producer id, and none can be hidden": (owners(NOBODY), None),
    },
    (UNKNOWN, VerdictReason.MAY_BE_HIDDEN): {
        "27 no id has it, but ids may be hidden": (owners(NOBODY, may_hide=True), None),
        "32 it may not be described": (owners(says=not_described(Obstacle.FORBIDDEN)), None),
    },
    (UNKNOWN, VerdictReason.UNSEEN): {
        "28 no id has it, but a broker did not answer": (owners(NOBODY, whole=False), None),
        "29 a broker that did not answer comes before ids that may be hidden": (
            owners(NOBODY, whole=False, may_hide=True),
            None,
        ),
        "30 its coordinator did not answer": (owners(says=not_described(Obstacle.UNSEEN)), None),
        "31 no answer about it at all": (owners(), None),
        "33 the id expired between list and description": (
            owners(says=not_described(Obstacle.UNKNOWN)),
            None,
        ),
        "34 the id went on under another producer id in between": (says(producer_id=8), None),
        "35 known for long, and its coordinator cannot be asked now": (
            owners(says=not_described(Obstacle.UNSEEN)),
            LONG_AGO,
        ),
    },
}
CASES = {case: (*given, *expected) for expected, cases in _CASES.items() for case, given in cases.items()}
