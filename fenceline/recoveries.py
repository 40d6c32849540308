"""Episodes: a transaction ended against its producer's wish; who waited, what was lost, when work went on."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How an episode stands, or ended."""

    #: The LSO is still held, or nobody has committed again yet.
    OPEN = "open"
    #: Readers were released and the id, or its application, committed again.
    RESUMED = "resumed"
    #: Readers were released, but for ten minutes nobody committed again.
    NOT_RESUMED = "not_resumed"
    #: It could not be seen to its end.
    UNSEEN = "unseen"
