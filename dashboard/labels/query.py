"""Labels of queries, their chains and their sinks' decisions: word, tone and meaning."""

from collections.abc import Mapping, Sequence

from dashboard.labels.status import StatusLabel
from fenceline.spark.batch_chain import BatchStep, ChainLink, LinkState
from fenceline.spark.drivers import Driver, DriverStatus
from fenceline.spark.records import QueryState
from fenceline.spark.safe_to_restart import RestartSafety

STATE_LABELS: Mapping[str, StatusLabel] = {
    QueryState.FAILED: StatusLabel("failed", "critical", "it ended with an exception"),
    QueryState.UNHEARD: StatusLabel(
        "no heartbeat",
        "unknown",
        "no listener reports it; a checkpoint does not show whether it runs",
    ),
    QueryState.STOPPED: StatusLabel("stopped", "unknown", "its driver ended it"),
    QueryState.RUNNING: StatusLabel("running", "ok", "its listener's heartbeat is on time"),
    QueryState.IDLE: StatusLabel("idle", "ok", "it runs, and there is nothing to read"),
}


def state_label(state: QueryState, driver: Driver) -> StatusLabel:
    """Return the label and style of a query's state; for a missing heartbeat, since when."""
    if driver.status is DriverStatus.NO_HEARTBEAT:
        return StatusLabel("no heartbeat", "warning", f"{driver.status_text}: its driver may be gone")
    return STATE_LABELS[state]


#: The status of a batch's decision.
DECISION_LABELS: Mapping[str, StatusLabel] = {
    "lost": StatusLabel("lost", "critical", "some of its transactions were gone before they were committed"),
    "prepared": StatusLabel("prepared", "warning", "prepared but not committed"),
    "committed": StatusLabel("committed", "ok", "every transaction of it is committed"),
    "aborted": StatusLabel("aborted", "unknown", "its transactions were aborted; the batch was repeated"),
}
SINK_WORDS: Mapping[str, str] = {
    "exactly_once": "exactly once",
    "kafka": "Kafka, at least once",
    "other": "other sink",
    "": "sink not known",
}
#: The promise of each kind of sink, for a query's own page.
SINK_MEANS: Mapping[str, str] = {
    "exactly_once": "Its sink writes each batch in transactions and keeps a ledger: exactly once.",
    "kafka": "Spark's own Kafka sink uses no transactions: after a failure a batch is written again, so "
    "its output is at-least-once.",
    "other": "Fenceline does not know its sink: a batch written twice may count twice.",
    "": "Its sink is not known: attach a listener to see it.",
}
#: A sink's guarantee about its output.
_GUARANTEES: Mapping[str, tuple[str, str]] = {
    "exactly_once": ("exactly once", "ok"),
    "kafka": ("at least once", "warning"),
}
#: Marks of the links of a chain; words beside them give their meaning.
LINK_TONES: Mapping[str, str] = {
    "done": "ok",
    "waiting": "info",
    "broken": "critical",
    "unknown": "unknown",
    "absent": "unknown",
}


def sink_words(sink: str) -> str:
    """Return the kind of a query's sink in words."""
    return SINK_WORDS.get("" if sink == "unknown" else sink, sink)


def guarantee_label(sink: str) -> StatusLabel:
    """Return the guarantee of a kind of sink, as far as known."""
    words, tone = _GUARANTEES.get(sink, ("not known", "unknown"))
    return StatusLabel(words, tone, SINK_MEANS[sink])


def restart_label(safe: RestartSafety, newest: int | None) -> StatusLabel:
    """Return whether a query is safe to restart, and the effect of a restart on its newest batch."""
    if not safe.safe:
        words, tone = ("unknown", "unknown") if safe.safe is None else ("no", "critical")
        return StatusLabel(words, tone, safe.sentence)
    batch = "a batch" if newest is None else f"batch {newest:,}"
    if safe.prepared:
        batch = batch if safe.prepared == 1 else f"{safe.prepared:,} batches"
        return StatusLabel(f"yes: finishes {batch}", "ok", safe.sentence)
    return StatusLabel(f"yes: repeats {batch}" if safe.reasons else "yes", "ok", safe.sentence)


#: The state before a step of a batch is done.
_IN_PROGRESS: Mapping[str, str] = {
    BatchStep.PLANNED: "planning",
    BatchStep.WRITTEN: "writing",
    BatchStep.PREPARED: "preparing",
    BatchStep.COMMITTED: "committing",
    BatchStep.RECORDED: "recording",
    BatchStep.CHECKPOINTED: "checkpointing",
}


def chain_label(chain: Sequence[ChainLink]) -> StatusLabel:
    """Return a chain in two words: its broken link, its pending step, or that it is done."""
    for state, words, tone in (
        (LinkState.BROKEN, "broken", "critical"),
        (LinkState.WAITING, "waiting", "info"),
    ):
        matching = next((link for link in chain if link.state is state), None)
        if matching is not None:
            verb = f"not {matching.link}" if state is LinkState.BROKEN else _IN_PROGRESS[matching.link]
            return StatusLabel(verb, tone, f"{words}: {matching.evidence}")
    if chain and chain[-1].state is LinkState.DONE:
        return StatusLabel("checkpointed", "ok", "every step is done")
    return StatusLabel("unknown", "unknown", "its progress is not known")
