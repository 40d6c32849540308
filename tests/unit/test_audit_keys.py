"""Proves what is concluded of a comparison by keys, and which ranges a replay takes."""

from hypothesis import given
from hypothesis import strategies as st

from fenceline.audit.keys import ComparedTopics, KeyTotals, compared_obstacles
from fenceline.audit.manifest import AuditedRange, ObstacleKind
from fenceline.audit.replays import count_offsets, ranges_without
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets

WHERE = TopicPartition("out", 0)
TOTALS = KeyTotals(10, 8, 2, 0, 1, 0, 0)
READABLE, BLOCKED = Offsets(0, 9, 9, 1), Offsets(0, 5, 9, 1)


def topics(now: Offsets = READABLE, **fields: object) -> ComparedTopics:
    return ComparedTopics({TopicPartition("in", 0): (0, 10)}, {WHERE: now}, **fields)  # type: ignore[arg-type]


def kinds(found: ComparedTopics, totals: KeyTotals) -> list[ObstacleKind]:
    return [each.kind for each in compared_obstacles(found, totals)]


def test_what_readers_do_not_get_yet_is_not_missing() -> None:
    blocked = topics(BLOCKED)
    assert blocked.concluded(TOTALS) == TOTALS._replace(missing=0)
    assert kinds(blocked, TOTALS) == [ObstacleKind.UNREADABLE]
    assert topics().concluded(TOTALS) == TOTALS
    assert kinds(topics(), TOTALS) == []


def test_of_compacted_topics_nothing_is_missing_or_duplicated() -> None:
    compacted = topics(compacted={"out"})
    assert compacted.concluded(TOTALS) == TOTALS._replace(missing=0, duplicated=0)
    assert kinds(compacted, TOTALS._replace(foreign=3)) == [ObstacleKind.COMPACTED]


def test_strange_keys_count_only_where_the_whole_input_was_read() -> None:
    strange = TOTALS._replace(foreign=3)
    assert kinds(topics(), strange) == [ObstacleKind.FOREIGN_RECORDS]
    assert kinds(topics(whole=False), strange) == []
    gone = TOTALS._replace(uncertain=1, keyless=1)
    assert kinds(topics(), gone) == [ObstacleKind.RETENTION, ObstacleKind.KEY_MISSING]


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
