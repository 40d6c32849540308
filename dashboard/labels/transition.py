"""The label and style of each kind of transition: word, tone, pattern in charts, and meaning.

The tone is one of the four state colours or "muted". Since colours never stand alone, each kind has a word,
its own mark in tables (`.mark-KIND`), and a pattern if kinds share a tone in a chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.labels.action import ACTS, STATES
from dashboard.labels.status import OUTCOME_LABELS, StatusLabel
from fenceline.facts import EVERYDAY, TransitionKind
from fenceline.history.timeline import EventSource, TimelineEvent


@dataclass(frozen=True, slots=True)
class TransitionStyle:
    """`pattern` is Plotly's, "" for a solid fill."""

    words: str
    plural: str
    tone: str
    pattern: str
    means: str


TRANSITION_STYLES: Mapping[TransitionKind, TransitionStyle] = {
    TransitionKind.TAKEOVER: TransitionStyle(
        "takeover",
        "takeovers",
        "critical",
        "",
        "another producer initialised the id while its transaction was open",
    ),
    TransitionKind.TIMEOUT: TransitionStyle(
        "timeout", "timeouts", "warning", "", "its coordinator aborted it: it was open for too long"
    ),
    TransitionKind.ADMIN_FENCE: TransitionStyle(
        "admin fence",
        "admin fences",
        "warning",
        "|",
        "an operator, or an Admin client, fenced its producer",
    ),
    TransitionKind.ADMIN_ABORT: TransitionStyle(
        "admin abort", "admin aborts", "warning", "x", "an action of Fenceline aborted it (EndTxn)"
    ),
    TransitionKind.ABORT: TransitionStyle(
        "abort, cause unknown",
        "aborts, cause unknown",
        "warning",
        ".",
        "by the client or by the coordinator: the records do not show which",
    ),
    TransitionKind.CLIENT_ABORT: TransitionStyle(
        "client abort", "client aborts", "muted", "", "aborted by its producer (EndTxn)"
    ),
    TransitionKind.EMPTY_ABORT: TransitionStyle(
        "abort of an empty transaction",
        "aborts of empty transactions",
        "muted",
        ".",
        "its producer aborted with nothing open",
    ),
    TransitionKind.SELF_RECOVERY: TransitionStyle(
        "epoch bump after an error",
        "epoch bumps after an error",
        "info",
        "+",
        "the same producer took a new epoch after an error (KIP-360)",
    ),
    TransitionKind.REINIT: TransitionStyle(
        "re-initialised",
        "re-initialisations",
        "info",
        "/",
        "the id was initialised again while nothing was open",
    ),
    TransitionKind.ROTATION: TransitionStyle(
        "rotation", "rotations", "info", "", "epoch exhaustion: it continues under a new producer id"
    ),
    TransitionKind.EXPIRY: TransitionStyle(
        "expiry", "expiries", "muted", "-", "its coordinator expired the idle id"
    ),
    TransitionKind.COMMIT: TransitionStyle("commit", "commits", "ok", "", "its producer committed it"),
    TransitionKind.BEGIN: TransitionStyle("begin", "begins", "info", "", "a first partition was added"),
    TransitionKind.EXTEND: TransitionStyle("extend", "extends", "info", "/", "another partition was added"),
    TransitionKind.INIT: TransitionStyle(
        "init", "inits", "muted", "/", "the first initialisation of a new id"
    ),
    TransitionKind.BASELINE: TransitionStyle(
        "baseline", "baselines", "muted", "/", "the oldest record still in the topic"
    ),
}
#: The kinds with their own rows, in the order of chips, legends and columns: worst first.
NOTABLE = tuple(kind for kind in TRANSITION_STYLES if kind not in EVERYDAY)


def kind_words(kind: TransitionKind, number: int) -> str:
    style = TRANSITION_STYLES[kind]
    return style.words if number == 1 else style.plural


#: The same as labels of a status: the kind is also the mark's name.
KIND_LABELS: Mapping[str, StatusLabel] = {
    kind.value: StatusLabel(style.words, kind.value, style.means) for kind, style in TRANSITION_STYLES.items()
}


_SEVERITY_TONES = ("critical", "warning", "info")
_DELIVERY_TONES = {"delivered": "ok", "failed": "critical"}
#: After these changes a finding, an incident or an alert needs no attention.
_OVER = frozenset({"closed", "resolved"})


def event_label(event: TimelineEvent) -> StatusLabel:
    if event.source is EventSource.TRANSITION:
        style = TRANSITION_STYLES[TransitionKind(event.what)]
        words = f"{event.count:,} × {style.words}" if event.count > 1 else style.words
        return StatusLabel(words, style.tone, style.means)
    if event.source is EventSource.ACTION:
        return _action(event)
    if event.source is EventSource.RECOVERY and event.what in OUTCOME_LABELS:
        label = OUTCOME_LABELS[event.what]
        return StatusLabel(f"recovery {label.words}", label.tone, label.means)
    return StatusLabel(f"{event.source} {event.what.replace('_', ' ')}", _tone(event), "")


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
