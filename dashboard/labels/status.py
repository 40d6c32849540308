"""How verdicts, statuses and outcomes look and read: word, tone, what it means, what to do. Pure.

The tone is one of the four state colours or "unknown"; its mark has a shape of its own, so that no colour
stands alone. Orders are from worst to harmless, as lists and chips show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from fenceline.kafka.groups import Status, Waiting
from fenceline.kafka.partitions import VERDICTS, Ground, Verdict
from fenceline.recoveries import Outcome


class Standing(NamedTuple):
    """A word, its tone, and what it means in half a sentence."""

    words: str
    tone: str
    means: str


WORST_VERDICTS: Sequence[Verdict] = tuple(reversed(VERDICTS))
WORST_STATUSES: Sequence[Status] = (
    Status.BLOCKED,
    Status.STOP,
    Status.STALL,
    Status.REWIND,
    Status.WARN,
    Status.UNKNOWN,
    Status.OK,
)

VERDICT_LOOKS: Mapping[str, Standing] = MappingProxyType(
    {
        Verdict.HANGING: Standing("hanging", "critical", "no coordinator owns it: nobody will ever end it"),
        Verdict.LATE: Standing("late", "warning", "its coordinator should have ended it by now"),
        Verdict.UNKNOWN: Standing("unknown", "unknown", "whose it is could not be seen"),
        Verdict.OPEN: Standing("open", "info", "its coordinator owns it, and it is within its limit"),
        Verdict.CLEAR: Standing("clear", "ok", "no transaction holds it back"),
    }
)
STATUS_LOOKS: Mapping[str, Standing] = MappingProxyType(
    {
        Status.BLOCKED: Standing(
            "BLOCKED",
            "critical",
            "it has consumed everything up to the LSO, and an open transaction blocks it",
        ),
        Status.STOP: Standing("STOP", "critical", "it has stopped committing"),
        Status.STALL: Standing(
            "STALL", "critical", "it commits the same offset again and again while there is more to read"
        ),
        Status.REWIND: Standing("REWIND", "warning", "its offset went back"),
        Status.WARN: Standing("WARN", "warning", "it advances, but falls behind"),
        Status.UNKNOWN: Standing("UNKNOWN", "unknown", "too little is known of it yet, or it cannot be seen"),
        Status.OK: Standing("OK", "ok", "it keeps up"),
    }
)
WAITING_LOOKS: Mapping[str, Standing] = MappingProxyType(
    {
        Waiting.PROBABLY: Standing(
            "likely blocked", "warning", "it is at the LSO, as a blocked read_committed consumer is"
        ),
        Waiting.READS_PAST: Standing(
            "reads uncommitted", "info", "it committed past the LSO, which only read_uncommitted can"
        ),
        Waiting.NOT_YET: Standing("not there yet", "unknown", "it is still on its way to the LSO"),
    }
)
OUTCOME_LOOKS: Mapping[str, Standing] = MappingProxyType(
    {
        Outcome.OPEN: Standing(
            "open", "info", "consumers are still blocked, or the producer has not committed again so far"
        ),
        Outcome.RESUMED: Standing(
            "resumed", "ok", "consumers were unblocked, and the id or its application committed again"
        ),
        Outcome.NOT_RESUMED: Standing(
            "unblocked, producer not back",
            "warning",
            "consumers were unblocked; neither the id nor its application committed for 10 minutes",
        ),
        Outcome.UNSEEN: Standing(
            "unseen", "unknown", "its partitions were not seen for a day, so how it ended is not known"
        ),
        Outcome.TOPIC_DELETED: Standing(
            "topic deleted",
            "unknown",
            "every topic that the transaction wrote to was deleted, so nothing is blocked any more",
        ),
    }
)


_MARKER = "Make sure that its producer is gone, then write an abort marker at its first offset."
#: What to do about an open transaction; `fenceline.explanations.because` says why it is what it is.
NEXT_STEPS: Mapping[str, str] = MappingProxyType(
    {
        Ground.OWNED: "Nothing yet: its producer ends it, or its coordinator aborts it at its timeout.",
        Ground.TWO_PHASE: "Only its own system may end it: find the job whose checkpoint decides on it.",
        Ground.PAST_TIMEOUT: "Look at the broker that coordinates it: it should have aborted it by itself.",
        Ground.STUCK_IN_PREPARE: (
            "Look at this partition's leader and at the coordinator: one does not reach the other."
        ),
        Ground.NOT_ITS_PARTITION: _MARKER,
        Ground.NO_SUCH_PRODUCER: _MARKER,
        Ground.MAY_BE_HIDDEN: (
            "Grant DESCRIBE on every transactional id, or set sees_all_transactional_ids if you know better."
        ),
        Ground.UNSEEN: "See on System what could not be seen; the verdict follows once it answers.",
        Ground.SEEN_ONCE: "Wait for the next look.",
    }
)


def trend(values: Sequence[int]) -> str:
    """Return "rising", "falling" or "steady", and "" for fewer than two values.

    A twentieth of the largest, and at least one, counts as a change: lag moves with every commit.
    """
    if len(values) < 2:
        return ""
    moved = values[-1] - values[0]
    if abs(moved) <= max(1, max(values) // 20):
        return "steady"
    return "rising" if moved > 0 else "falling"
