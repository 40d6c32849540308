"""The outcomes of incidents at their closing, from the stores' facts about their causes."""

from dashboard.models import (
    AbortedCommit,
    Action,
    Incident,
    IncidentFinding,
    PartitionRecord,
    Query,
    Run,
    SinkDecision,
    TransitionRecord,
)
from dashboard.recoveries.evidence import written_records
from dashboard.system.owners import split_partition
from dashboard.transactions.sql import recent_ring
from fenceline.formatting import format_clock, list_names
from fenceline.incidents.outcomes import (
    ActionTaken,
    batch_ending,
    end_of_transaction,
    transaction_ending,
)
from fenceline.kafka.fold.transition_ring import unpack_ring
from fenceline.kafka.transactional_ids import key_of_name
from fenceline.losses.aborted_commits import lost_words

#: An action's result may be stored this long before its effect is observed.
_BEFORE_MS = 60_000


def outcome_of(row: Incident) -> str:
    """Return the outcome of a closed incident as a sentence; "" if nothing shows it."""
    kind, _, name = row.subject.partition(":")
    if kind == "transaction":
        return _transaction_outcome(row, name)
    if kind == "query":
        return _query_outcome(row, name)
    if kind == "partition":
        return _partition_outcome(row, name)
    action = _action_on(row)
    return f"Ended by {action}." if action else ""


def _transaction_outcome(row: Incident, name: str) -> str:
    key = key_of_name(name)
    ring = recent_ring(row.cluster_id, key)
    end = end_of_transaction(unpack_ring(ring.packed if ring else b"", 0), row.instance)
    if end is None:
        return _deleted_outcome(row)
    transition = (
        TransitionRecord.objects.filter(cluster=row.cluster_id, key=key, at_ms=end.at_ms)
        .select_related("action")
        .first()
    )
    known = transition.action if transition else None
    return transaction_ending(end, _taken(known) if known else _action_on(row), _lost_words(row, key))


def _lost_words(row: Incident, key: bytes) -> str:
    """Return the records that its transaction lost before its commit, as text; "" without any."""
    started_ms = row.instance.partition("@")[2]
    commit = AbortedCommit.objects.filter(
        cluster=row.cluster_id, key=key, started_ms=started_ms or -1
    ).first()
    return lost_words(written_records(commit)) if commit else ""


def _query_outcome(row: Incident, ident: str) -> str:
    query = Query.objects.filter(cluster=row.cluster_id, ident=ident).first()
    if query is None:
        return "The query was forgotten."
    what, _, number = row.instance.partition(" ")
    if what == "batch" and row.rule != "batch_slow":
        ended = SinkDecision.objects.filter(query=query, batch_id=int(number)).exclude(outcome="")
        decision = ended.order_by("-round").first()
        return _decision_outcome(row, query, decision) if decision else ""
    started_ms = _restarted_ms(row, query)
    if row.rule == "query_failed" and started_ms is not None:
        return f"It was started again at {format_clock(started_ms)}."
    return ""


def _decision_outcome(row: Incident, query: Query, decision: SinkDecision) -> str:
    gone = set(decision.lost)
    return batch_ending(
        decision.batch_id,
        decision.outcome,
        _action_on(row) if decision.done_by == "operator" else None,
        done_ms=decision.done_ms or row.closed_ms or 0,
        rows=sum(transaction["records"] for transaction in decision.transactions),
        lost_rows=sum(
            transaction["records"]
            for transaction in decision.transactions
            if transaction["transactional_id"] in gone
        ),
        restarted_ms=_restarted_ms(row, query),
    )


def _restarted_ms(row: Incident, query: Query) -> int | None:
    """Return when the first run after the damage began was first reported, None without any."""
    runs = Run.objects.filter(query=query, first_heard_ms__gt=row.since_ms).order_by("first_heard_ms")
    return runs.values_list("first_heard_ms", flat=True).first()


def _partition_outcome(row: Incident, name: str) -> str:
    topic, number = split_partition(name) or (name, -1)
    partition = PartitionRecord.objects.filter(cluster=row.cluster_id, topic=topic, partition=number).first()
    if partition is None:
        return f"The topic {topic} was deleted."
    if action := _action_on(row):
        return f"Aborted by {action}."
    if partition.lso is not None and partition.pinned_ms is None and row.closed_ms is not None:
        return f"The last stable offset moved on at {format_clock(row.closed_ms)}."
    return ""


def _deleted_outcome(row: Incident) -> str:
    """Return a sentence if all topics blocked by a transaction were deleted, else ""."""
    blocked = IncidentFinding.objects.filter(incident=row, subject__startswith="partition:")
    places = {
        split_partition(subject.removeprefix("partition:"))
        for subject in blocked.values_list("subject", flat=True)
    }
    topics = {place[0] for place in places if place}
    left = PartitionRecord.objects.filter(cluster=row.cluster_id, topic__in=topics)
    if not topics or left.exists():
        return ""
    verb = "topic {} was" if len(topics) == 1 else "topics {} were"
    return f"The {verb.format(list_names(sorted(topics)))} deleted."


def _action_on(row: Incident) -> ActionTaken | None:
    """Return the newest action on the subject of a cause while its incident was open."""
    ended = Action.objects.filter(
        cluster=row.cluster_id,
        state__in=(Action.State.DONE, Action.State.PARTLY),
        ended_ms__gte=row.opened_ms - _BEFORE_MS,
        ended_ms__lte=(row.closed_ms or row.opened_ms) + _BEFORE_MS,
        subjects__contains=row.subject,
    )
    matching = (
        action for action in ended.order_by("-ended_ms") if row.subject in action.subjects.splitlines()
    )
    newest = next(matching, None)
    return _taken(newest) if newest else None


def _taken(action: Action) -> ActionTaken:
    return ActionTaken(action.pk, action.executed_by, action.reason)
