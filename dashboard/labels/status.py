"""Labels of verdicts, statuses and outcomes: word, tone, meaning, and what to do.

The tone is one of the four state colours or "unknown"; its mark has its own shape, so that no colour stands
alone. The order is from worst to harmless, as in lists and chips.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dashboard.models import Token
from fenceline.facts import TransactionState
from fenceline.kafka.capabilities import CapabilityState
from fenceline.kafka.groups import GroupStatus, Waiting
from fenceline.kafka.partitions import PartitionVerdict, VerdictReason
from fenceline.kafka.record_fate import RecordFate
from fenceline.losses.recoveries import RecoveryOutcome


class StatusLabel(NamedTuple):
    """A word, its tone, and its meaning in half a sentence."""

    words: str
    tone: str
    means: str


VERDICT_LABELS: Mapping[str, StatusLabel] = {
    "blocked": StatusLabel("BLOCKED", "warning", "an open transaction blocks its LSO"),
    PartitionVerdict.HANGING: StatusLabel(
        "hanging", "critical", "orphaned: its coordinator will not complete it"
    ),
    PartitionVerdict.LATE: StatusLabel("late", "warning", "overdue: its coordinator has not ended it"),
    PartitionVerdict.UNKNOWN: StatusLabel("unknown", "unknown", "its coordinator could not be checked"),
    PartitionVerdict.OPEN: StatusLabel("open", "info", "its coordinator owns it, and it is within its limit"),
    PartitionVerdict.CLEAR: StatusLabel("clear", "ok", "no transaction blocks it"),
}
RECORD_LABELS: Mapping[str, StatusLabel] = {
    RecordFate.COMMITTED: StatusLabel("committed", "ok", "its transaction was committed"),
    RecordFate.PLAIN: StatusLabel("no transaction", "ok", "it was written outside any transaction"),
    RecordFate.ABORTED: StatusLabel("aborted", "warning", "its transaction was aborted"),
    RecordFate.OPEN: StatusLabel("open", "info", "its transaction has no marker yet"),
    RecordFate.MARKER: StatusLabel("marker", "info", "the end of a transaction, which no consumer gets"),
    RecordFate.COMPACTED: StatusLabel("no record", "unknown", "compaction removed it, or the log skips it"),
    RecordFate.DELETED: StatusLabel("deleted", "unknown", "it lies before the log's start"),
    RecordFate.NOT_WRITTEN: StatusLabel("not written", "unknown", "the log does not reach it yet"),
    RecordFate.UNKNOWN: StatusLabel("unknown", "unknown", "its marker was not found"),
}
STATUS_LABELS: Mapping[str, StatusLabel] = {
    GroupStatus.BLOCKED: StatusLabel(
        "BLOCKED",
        "critical",
        "it has consumed everything up to the LSO, and an open transaction blocks it",
    ),
    GroupStatus.STOP: StatusLabel("STOP", "critical", "it has stopped committing"),
    GroupStatus.STALL: StatusLabel(
        "STALL", "critical", "it commits the same offset again and again while there is more to read"
    ),
    GroupStatus.REWIND: StatusLabel("REWIND", "warning", "its offset went back"),
    GroupStatus.WARN: StatusLabel("WARN", "warning", "it advances, but falls behind"),
    GroupStatus.UNKNOWN: StatusLabel("UNKNOWN", "unknown", "not enough data"),
    GroupStatus.OK: StatusLabel("OK", "ok", "healthy"),
    GroupStatus.LEFT: StatusLabel(
        "not assigned", "unknown", "no member of the group subscribes to this topic any more"
    ),
}
#: The classes of badges of a transaction's state.
TRANSACTION_STATE_TONES: Mapping[str, str] = {
    TransactionState.COMPLETE_COMMIT: "tone-ok",
    TransactionState.ONGOING: "tone-info",
    TransactionState.PREPARE_COMMIT: "tone-info",
    TransactionState.PREPARE_ABORT: "tone-warning",
}
WAITING_LABELS: Mapping[str, StatusLabel] = {
    Waiting.PROBABLY: StatusLabel(
        "likely blocked", "warning", "it is at the LSO, as a blocked read_committed consumer is"
    ),
    Waiting.READS_PAST: StatusLabel(
        "reads uncommitted", "info", "it committed past the LSO, which only read_uncommitted can"
    ),
    Waiting.NOT_YET: StatusLabel("not there yet", "unknown", "it has not reached the LSO yet"),
}
OUTCOME_LABELS: Mapping[str, StatusLabel] = {
    RecoveryOutcome.OPEN: StatusLabel(
        "open", "info", "consumers are still blocked, or the producer has not committed again so far"
    ),
    RecoveryOutcome.RESUMED: StatusLabel(
        "resumed", "ok", "consumers were unblocked, and the id or its application committed again"
    ),
    RecoveryOutcome.NOT_RESUMED: StatusLabel(
        "unblocked, producer not back",
        "warning",
        "consumers were unblocked; neither the id nor its application committed for 10 minutes",
    ),
    RecoveryOutcome.UNSEEN: StatusLabel("unknown", "unknown", "its partitions were unavailable for a day"),
    RecoveryOutcome.TOPIC_DELETED: StatusLabel(
        "topic deleted",
        "unknown",
        "every topic that the transaction wrote to was deleted, so nothing is blocked any more",
    ),
}


_MARKER = "Make sure that its producer is gone, then write an abort marker at its first offset."
#: What to do about an open transaction; `fenceline.text.verdict_reason` explains the verdict.
NEXT_STEPS: Mapping[str, str] = {
    VerdictReason.OWNED: (
        "Its producer ends it, or its coordinator aborts it at its timeout. A fence aborts it now."
    ),
    VerdictReason.TWO_PHASE: ("Only its own system may end it: find the job whose checkpoint decides on it."),
    VerdictReason.PAST_TIMEOUT: ("Check the broker that coordinates it: it should have aborted it."),
    VerdictReason.STUCK_IN_PREPARE: (
        "Check this partition's leader and the coordinator: one cannot reach the other."
    ),
    VerdictReason.NOT_ITS_PARTITION: _MARKER,
    VerdictReason.NO_SUCH_PRODUCER: _MARKER,
    VerdictReason.MAY_BE_HIDDEN: (
        "Grant DESCRIBE on every transactional id, or set sees_all_transactional_ids."
    ),
    VerdictReason.UNSEEN: "See the blind spots on System; the verdict follows once data is available.",
    VerdictReason.SEEN_ONCE: "Wait for the next poll.",
}


def trend_word(values: Sequence[int]) -> str:
    """Return "rising", "falling" or "steady", or "" for fewer than two values.

    A difference of a twentieth of the largest value, and at least one, counts as a change, because lag moves
    with every commit.
    """
    if len(values) < 2:
        return ""
    moved = values[-1] - values[0]
    if abs(moved) <= max(1, max(values) // 20):
        return "steady"
    return "rising" if moved > 0 else "falling"


CAPABILITY_LABELS: Mapping[str, StatusLabel] = {
    CapabilityState.WORKS: StatusLabel("works", "ok", "requests, rights and topics for it are there"),
    CapabilityState.LIMITED: StatusLabel("limited", "warning", "what narrower grants allow is shown"),
    CapabilityState.MISSING: StatusLabel("missing", "warning", "a request, a right or a topic is not there"),
    CapabilityState.UNKNOWN: StatusLabel("unknown", "unknown", "it could not be tried"),
}


#: States of users (`dashboard.system.users.state_of`) and of tokens (`Token.state`).
ACCESS_STATES: Mapping[str, StatusLabel] = {
    "active": StatusLabel("active", "ok", "it may be used"),
    "invited": StatusLabel("invited", "info", "no password is set yet"),
    "external": StatusLabel("external", "ok", "signs in at an identity provider"),
    "disabled": StatusLabel("disabled", "unknown", "this user cannot sign in"),
    "expired": StatusLabel("expired", "unknown", "it is refused"),
    "revoked": StatusLabel("revoked", "unknown", "it is refused"),
}
ROLE_MEANS: Mapping[str, str] = {
    Token.Role.VIEWER: "sees every page, changes nothing",
    Token.Role.OPERATOR: "also plans and executes actions, silences alerts, acknowledges incidents",
    Token.Role.ADMIN: "also overrules refusals, manages channels, users and tokens, sees the audit log",
    Token.Role.INGEST: "only posts the progress of a Spark listener",
}
