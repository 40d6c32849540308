"""Labels of the timeline's events: words, tone and meaning."""

from dashboard.labels.action import ACTS, STATES
from dashboard.labels.status import OUTCOME_LABELS, StatusLabel
from dashboard.labels.transition import TRANSITION_STYLES
from fenceline.facts import TransitionKind
from fenceline.history.timeline import EventSource, TimelineEvent

_SEVERITY_TONES = ("critical", "warning", "info")
_DELIVERY_TONES = {"delivered": "ok", "failed": "critical"}
#: After these changes a finding, an incident or an alert needs no attention.
_OVER = frozenset({"closed", "resolved"})


def event_label(event: TimelineEvent) -> StatusLabel:
    """Return the label and style of an event."""
    if event.source is EventSource.TRANSITION:
        return _transition(event)
    if event.source is EventSource.ACTION:
        return _action(event)
    if event.source is EventSource.RECOVERY and event.what in OUTCOME_LABELS:
        label = OUTCOME_LABELS[event.what]
        return StatusLabel(f"recovery {label.words}", label.tone, label.means)
    return StatusLabel(f"{event.source} {event.what.replace('_', ' ')}", _tone(event), "")


def _transition(event: TimelineEvent) -> StatusLabel:
    label = TRANSITION_STYLES[TransitionKind(event.what)]
    words = f"{event.count:,} × {label.words}" if event.count > 1 else label.words
    return StatusLabel(words, label.tone, label.means)


def _action(event: TimelineEvent) -> StatusLabel:
    act, _, state = event.what.rpartition("_")
    noun = ACTS[act].noun
    if state == "started":
        return StatusLabel(f"{noun} started", "info", "an operator confirmed it")
    return StatusLabel(f"{noun} {STATES[state].words}", STATES[state].tone, STATES[state].means)


def _tone(event: TimelineEvent) -> str:
    if event.source is EventSource.DELIVERY:
        return _DELIVERY_TONES.get(event.what, "info")
    if event.what in _OVER:
        return "ok"
    return event.severity if event.severity in _SEVERITY_TONES else "info"
