"""Labels of engines' own reports, of Flink's pending commits and of its sinks' other open transactions."""

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel
from fenceline.engines.flink.restore import CommitFate, Lingering

FATE_LABELS: Mapping[CommitFate, StatusLabel] = {
    CommitFate.LOST: StatusLabel(
        "lost", "critical", "it was aborted: a restore does not bring its records back"
    ),
    CommitFate.PENDING: StatusLabel(
        "not yet committed", "warning", "it is open as it was pre-committed: a restore commits it"
    ),
    CommitFate.UNKNOWN: StatusLabel("unknown", "unknown", "its coordinator's state is not known here"),
    CommitFate.ENDED: StatusLabel(
        "ended", "unknown", "its id has gone on under another epoch: see the history of the id"
    ),
    CommitFate.SUPERSEDED: StatusLabel(
        "superseded", "info", "it has ended; its id has a newer transaction open, which a restore leaves open"
    ),
    CommitFate.COMMITTED: StatusLabel("committed", "ok", "its coordinator has committed it"),
}
LINGERING_LABELS: Mapping[Lingering, StatusLabel] = {
    Lingering.LEFT: StatusLabel(
        "left behind", "warning", "no checkpoint holds it: a restore aborts it, or its timeout does"
    ),
    Lingering.UNDECIDED: StatusLabel(
        "unknown", "unknown", "the newest checkpoint does not hold it, and a run without one may write it"
    ),
    Lingering.WRITING: StatusLabel("writing", "info", "it writes for a later checkpoint"),
}
#: Labels of a job's newest readable checkpoint.
CHECKPOINT_WORDS: Mapping[bool | None, str] = {True: "savepoint", False: "checkpoint", None: "checkpoint"}


#: By Flink's and Connect's own names; any other one is unknown.
_TONES: Mapping[str, str] = {
    "RUNNING": "ok",
    "FINISHED": "info",
    "PAUSED": "info",
    "STOPPED": "info",
    "CANCELED": "info",
    "SUSPENDED": "info",
    "CREATED": "info",
    "INITIALIZING": "info",
    "SCHEDULED": "info",
    "DEPLOYING": "info",
    "RECONCILING": "info",
    "RESTARTING": "warning",
    "CANCELLING": "warning",
    "CANCELING": "warning",
    "FAILING": "warning",
    "UNASSIGNED": "warning",
    "FAILED": "critical",
}


def engine_state(word: str) -> StatusLabel:
    """Return the label of a state, in the engine's own name."""
    return StatusLabel(word, _TONES.get(word, "unknown"), "as the engine's REST API reported it last")
