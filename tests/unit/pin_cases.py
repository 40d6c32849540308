"""Open transactions of a producer by numbered cases: what coordinators answer about each, and its verdict."""

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


HANGING, LATE, OPEN, UNKNOWN = (
    PartitionVerdict.HANGING,
    PartitionVerdict.LATE,
    PartitionVerdict.OPEN,
    PartitionVerdict.UNKNOWN,
)


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


LONG_AGO = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE - 1)
JUST_IN_TIME = lso_blocker(first_seen_ms=NOW_MS - TIMEOUT_MS - GRACE)
STUCK = lso_blocker(prepared_ms=NOW_MS - GRACE - 1)
FOR_EVER = TWO_PHASE_COMMIT_TIMEOUT_MS
CASES: dict[str, tuple[ProducerOwners, Pin | None, PartitionVerdict, VerdictReason]] = {
    # Owned.
    "1 its coordinator names the partition": (owners(says=described()), None, OPEN, VerdictReason.OWNED),
    "2 it is being committed": (
        owners(says=described(TransactionState.PREPARE_COMMIT)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "3 it is being aborted": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "4 its epoch was raised for the abort of a timeout": (
        owners(says=described(TransactionState.PREPARE_ABORT, epoch=5)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "5 protocol 2 raised its epoch since the last end here": (
        owners(says=described(epoch=900)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "6 the partition is a later epoch ahead of its coordinator": (
        owners(says=described(epoch=3)),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "7 hidden ids do not matter where the owner is seen": (
        owners(says=described(), may_hide=True),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    "8 nor does a broker that did not answer": (
        owners(says=described(), whole=False),
        None,
        OPEN,
        VerdictReason.OWNED,
    ),
    # Late.
    "9 past its timeout and the coordinator's scan": (
        owners(says=described()),
        LONG_AGO,
        LATE,
        VerdictReason.PAST_TIMEOUT,
    ),
    "10 to the last millisecond of it": (owners(says=described()), JUST_IN_TIME, OPEN, VerdictReason.OWNED),
    "11 long open by its coordinator's clock, not yet by ours": (
        owners(says=described(timeout_ms=1)),
        lso_blocker(first_seen_ms=NOW_MS - GRACE),
        OPEN,
        VerdictReason.OWNED,
    ),
    "12 two-phase commit never times out": (
        owners(says=described(timeout_ms=FOR_EVER)),
        lso_blocker(first_seen_ms=0),
        OPEN,
        VerdictReason.TWO_PHASE,
    ),
    "13 stuck in PrepareCommit": (
        owners(says=described(TransactionState.PREPARE_COMMIT)),
        STUCK,
        LATE,
        VerdictReason.STUCK_IN_PREPARE,
    ),
    "14 stuck in PrepareAbort": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        STUCK,
        LATE,
        VerdictReason.STUCK_IN_PREPARE,
    ),
    "15 past its timeout, but decided a moment ago": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        LONG_AGO,
        OPEN,
        VerdictReason.OWNED,
    ),
    "16 decided for as long as the grace": (
        owners(says=described(TransactionState.PREPARE_ABORT)),
        lso_blocker(prepared_ms=NOW_MS - GRACE),
        OPEN,
        VerdictReason.OWNED,
    ),
    "17 two-phase commit is never late, also when it was decided long ago": (
        owners(says=described(TransactionState.PREPARE_COMMIT, timeout_ms=FOR_EVER)),
        STUCK,
        OPEN,
        VerdictReason.TWO_PHASE,
    ),
    # Hanging: its coordinator is seen.
    "18 its coordinator says Empty": (
        owners(says=described(TransactionState.EMPTY, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "19 its coordinator has committed it": (
        owners(says=described(TransactionState.COMPLETE_COMMIT, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "20 its coordinator has aborted it": (
        owners(says=described(TransactionState.COMPLETE_ABORT, ())),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "21 its coordinator has another transaction open, elsewhere": (
        owners(says=described(partitions=OTHERS)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "22 its coordinator has written the marker here, or so it thinks": (
        owners(says=described(TransactionState.PREPARE_COMMIT, OTHERS)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "23 hidden ids do not matter where the producer id's own id is seen": (
        owners(says=described(TransactionState.EMPTY, ()), may_hide=True),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "24 a completed transaction that still names it (Kafka 3.9) is over": (
        owners(says=described(TransactionState.COMPLETE_COMMIT)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    "25 two-phase commit hangs as well where nobody owns it": (
        owners(says=described(TransactionState.EMPTY, (), timeout_ms=FOR_EVER)),
        None,
        HANGING,
        VerdictReason.NOT_ITS_PARTITION,
    ),
    # Hanging: nobody has the producer id.
    "26 no id has the producer id, and none can be hidden": (
        owners(NOBODY),
        None,
        HANGING,
        VerdictReason.NO_SUCH_PRODUCER,
    ),
    # Unknown.
    "27 no id has it, but ids may be hidden": (
        owners(NOBODY, may_hide=True),
        None,
        UNKNOWN,
        VerdictReason.MAY_BE_HIDDEN,
    ),
    "28 no id has it, but a broker did not answer": (
        owners(NOBODY, whole=False),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "29 a broker that did not answer comes before ids that may be hidden": (
        owners(NOBODY, whole=False, may_hide=True),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "30 its coordinator did not answer": (
        owners(says=not_described(Obstacle.UNSEEN)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "31 no answer about it at all": (owners(), None, UNKNOWN, VerdictReason.UNSEEN),
    "32 it may not be described": (
        owners(says=not_described(Obstacle.FORBIDDEN)),
        None,
        UNKNOWN,
        VerdictReason.MAY_BE_HIDDEN,
    ),
    "33 the id expired between list and description": (
        owners(says=not_described(Obstacle.UNKNOWN)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "34 the id went on under another producer id in between": (
        owners(says=described(producer_id=8)),
        None,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
    "35 known for long, and its coordinator cannot be asked now": (
        owners(says=not_described(Obstacle.UNSEEN)),
        LONG_AGO,
        UNKNOWN,
        VerdictReason.UNSEEN,
    ),
}
