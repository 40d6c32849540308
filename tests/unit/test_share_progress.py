"""Proves which offset a share group's start offset and lag come to, by how the group reads."""

import pytest

from fenceline.facts import Isolation
from fenceline.kafka.groups import ShareProgress
from fenceline.kafka.partitions import Offsets


@pytest.mark.parametrize(
    ("start", "lag", "isolation", "position"),
    [
        (0, None, Isolation.READ_COMMITTED, 0),
        (0, 10, Isolation.READ_UNCOMMITTED, 30),
        (0, 10, Isolation.READ_COMMITTED, 30),
        # Records after the lag was reported are no work that was done: it never passes the LSO.
        (0, 3, Isolation.READ_COMMITTED, 35),
        (0, 3, Isolation.READ_UNCOMMITTED, 37),
        (36, 50, Isolation.UNKNOWN, 36),
    ],
)
def test_a_share_group_s_lag_gives_its_position(
    start: int, lag: int | None, isolation: Isolation, position: int
) -> None:
    assert ShareProgress(start, lag).position(Offsets(0, 35, 40, 1), isolation) == position
    assert ShareProgress(start, lag).position(None, isolation) == start
