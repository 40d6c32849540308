"""The label and style of each kind of transition: word, tone, pattern in charts, and meaning.

The tone is one of the four state colours or "muted". Since colours never stand alone, each kind has a word,
its own mark in tables (`.mark-KIND`), and a pattern if kinds share a tone in a chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.labels.status import StatusLabel
from fenceline.facts import EVERYDAY, TransitionKind


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
    """Return a kind in the singular or in the plural."""
    style = TRANSITION_STYLES[kind]
    return style.words if number == 1 else style.plural


#: The same as labels of a status: the kind is also the mark's name.
KIND_LABELS: Mapping[str, StatusLabel] = {
    kind.value: StatusLabel(style.words, kind.value, style.means) for kind, style in TRANSITION_STYLES.items()
}
