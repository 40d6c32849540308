"""Labels of engines' own reports: states of jobs, operators, connectors and tasks. Pure."""

from collections.abc import Mapping

from dashboard.labels.status import StatusLabel

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
