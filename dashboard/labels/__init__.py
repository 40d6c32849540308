"""The words and tones of states, transitions, queries and actions."""

from collections.abc import Mapping
from typing import Any

from dashboard.labels import action, alert, flow, query, status
from dashboard.labels.status import StatusLabel

#: The labels of states by kind, for the template filter `label`.
LABELS: Mapping[str, Mapping[Any, StatusLabel]] = {
    "access": status.ACCESS_STATES,
    "action": action.STATES,
    "alert": alert.ALERT_STATES,
    "capability": status.CAPABILITY_LABELS,
    "decision": query.DECISION_LABELS,
    "delivery": alert.DELIVERY_STATES,
    "fate": flow.FATE_LABELS,
    "lingering": flow.LINGERING_LABELS,
    "outcome": status.OUTCOME_LABELS,
    "query": query.STATE_LABELS,
    "record": status.RECORD_LABELS,
    "result": action.OUTCOMES,
    "silence": alert.SILENCE_STATES,
    "status": status.STATUS_LABELS,
    "verdict": status.VERDICT_LABELS,
    "waiting": status.WAITING_LABELS,
}
