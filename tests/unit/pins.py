"""A producer's open transaction at the start of a partition, and what is known of it."""

from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import PartitionPlace, PartitionVerdict, Pin, ProducerState, VerdictReason

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
