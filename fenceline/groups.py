"""Consumer groups: what they committed, how far they are behind, and what that is in Burrow's words."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """How a group does in a partition, in Burrow's vocabulary; a group has the worst of its partitions'."""

    OK = "OK"
    #: It commits and advances, but falls behind.
    WARN = "WARN"
    #: It commits the same offset again and again while there is more to read.
    STALL = "STALL"
    #: It has not committed for longer than it took for all the commits that we remember.
    STOP = "STOP"
    #: Its offset went back.
    REWIND = "REWIND"
    #: Too little is known yet, or it cannot be seen.
    UNKNOWN = "UNKNOWN"


class Waiting(StrEnum):
    """How a group stands to a pinned LSO (its isolation level is not visible)."""

    #: It stands at the LSO: probably read_committed, and waiting there.
    PROBABLY = "probably"
    #: It committed past the LSO: read_uncommitted, certainly.
    READS_PAST = "reads_past"
    #: It is still on its way to the LSO.
    NOT_YET = "not_yet"


class Committed(NamedTuple):
    """A group's committed offset for one partition (OffsetFetch); metadata as escaped text."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class Commit(NamedTuple):
    """One commit at its instant, by the coordinator's clock."""

    at_ms: int
    offset: int
