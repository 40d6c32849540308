"""Attribute transitions to the actions that caused them, by the records written for the actions.

The tail may read a record before its action's result is stored, or after it. In the first case
`save_attributions` revises the rows, in the second the tail's own fold attributes them
(`fenceline.kafka.attributions`), with the same result. Both hold the lock on the cluster's row. A tail folds
again if a record was stored since its fold (`dashboard.transactions.store`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from django.db.models import QuerySet

from dashboard.models import Action, ActionRecord, Recent, Transaction, TransitionRecord
from dashboard.transactions import sql as transaction_sql
from dashboard.transactions.sql import recent_ring
from fenceline.facts import TransactionState, Transition
from fenceline.kafka.attributions import (
    ActionCause,
    CausesByRecord,
    RecordIdentity,
    action_of,
    attribute_past,
)
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.counting import MinuteTally
from fenceline.kafka.transactional_ids import key_of_name

#: Changes of an id's transitions: the old version and the new one, None for a removal.
Changes = Sequence[tuple[Transition, Transition | None]]

_MINUTE_MS = 60_000
#: The most notable transitions of an id to search; an action's transitions are among the newest.
_MOST_TRANSITIONS = 100


def action_causes(cluster_id: int) -> Mapping[bytes, CausesByRecord]:
    """Return the records of a cluster's actions, by the keys of transactional ids."""
    return _by_key(ActionRecord.objects.filter(cluster_id=cluster_id))


def _by_key(records: QuerySet[ActionRecord]) -> Mapping[bytes, CausesByRecord]:
    by_key: dict[bytes, dict[RecordIdentity, ActionCause]] = defaultdict(dict)
    for row in records:
        identity = (row.producer_id, row.producer_epoch, TransactionState(row.state))
        by_key[bytes(row.key)][identity] = ActionCause(row.action_id, row.fence)
    return by_key


def action_words(action: Action | None) -> str:
    """Return an action as text for the evidence of its transitions, "" for None."""
    return "" if action is None else f"{action.executed_by}, action {action.pk}"


def of_transitions(cluster: str, key: bytes, transitions: Sequence[Transition]) -> Sequence[Action | None]:
    """Return the action that caused each of a transactional id's transitions, or None."""
    known = _by_key(ActionRecord.objects.filter(cluster__name=cluster, key=key)).get(key, {})
    numbers = (
        [action_of(transition, known) for transition in transitions] if known else [None] * len(transitions)
    )
    actions = Action.objects.in_bulk([number for number in numbers if number is not None])
    return [None if number is None else actions.get(number) for number in numbers]


class WrittenRecord(NamedTuple):
    """A record of `__transaction_state` that a coordinator wrote for our request, by its own answer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: `facts.State`: Empty, PrepareCommit or PrepareAbort.
    state: str
    #: Whether a fence (InitProducerId) caused it; else an EndTxn did.
    fence: bool


def save_attributions(action: Action, records: Sequence[WrittenRecord], *, rev: int, now_ms: int) -> None:
    """Save an action's records, and attribute the transitions that were derived earlier.

    Call it in a transaction that has locked the cluster's row (`dashboard.runtime.write_transactions`).
    """
    keyed = [(key_of_name(record.transactional_id), record) for record in records]
    made = [
        ActionRecord(
            cluster_id=action.cluster_id,
            action=action,
            key=key,
            **{name: value for name, value in record._asdict().items() if name != "transactional_id"},
        )
        for key, record in keyed
    ]
    ActionRecord.objects.bulk_create(made, ignore_conflicts=True)
    for key in sorted({key for key, _ in keyed}):
        _attribute(action.cluster_id, key, rev, now_ms)


def _attribute(cluster_id: int, key: bytes, rev: int, now_ms: int) -> None:
    """Revise an id's transitions that were derived before its action's result was stored."""
    known = _by_key(ActionRecord.objects.filter(cluster_id=cluster_id, key=key))[key]
    _revise_recent(cluster_id, key, known)
    notable = TransitionRecord.objects.filter(cluster_id=cluster_id, key=key)
    _revise_notable(notable, known, rev, now_ms)


def _revise_recent(cluster_id: int, key: bytes, known: CausesByRecord) -> None:
    ring = recent_ring(cluster_id, key)
    if ring is None:
        return
    # The packed form does not include the partition.
    before = transition_ring.unpack_ring(ring.packed, 0)
    changes = {was.offset: now for was, now in attribute_past(before, known)}
    after = [changes.get(transition.offset, transition) for transition in before]
    packed = transition_ring.pack_ring(
        [transition_ring.pack_entry(transition) for transition in after if transition is not None]
    )
    if packed != ring.packed:
        known_ids = Transaction.objects.filter(cluster_id=cluster_id, key=key).exclude(recent=b"")
        if not known_ids.update(recent=packed):
            Recent.objects.filter(cluster_id=cluster_id, key=key).update(packed=packed)


def _revise_notable(
    notable: QuerySet[TransitionRecord], known: CausesByRecord, rev: int, now_ms: int
) -> None:
    rows = list(notable.order_by("-log_offset", "-pk")[:_MOST_TRANSITIONS])
    by_offset = {row.log_offset: row for row in rows}
    changes = attribute_past([transaction_sql.transition_of(row) for row in rows], known)
    for was, now in changes:
        row = by_offset[was.offset]
        if now is None:
            row.delete()
        else:
            row.kind, row.confidence, row.reason = now.kind.value, now.confidence.value, now.reason.value
            row.gap_ms, row.action_id = now.gap_ms, action_of(now, known)
            row.rev, row.revised_ms = rev, now_ms
            row.revised_from = row.revised_from or was.kind.value
            row.save()
    _recount(rows, changes)


def _recount(rows: Sequence[TransitionRecord], changes: Changes) -> None:
    """Move the counts of transitions with a changed kind, in their minutes."""
    if not rows:
        return
    application, tallies = rows[0].application, defaultdict[tuple[str, int], MinuteTally](MinuteTally)
    for was, now in changes:
        if now is None or now.kind is not was.kind:
            tally = tallies[application, was.at_ms - was.at_ms % _MINUTE_MS]
            tally.count_transition(was.counted_kind, -1)
            if now is not None:
                tally.count_transition(now.counted_kind)
    transaction_sql.add_tallies(rows[0].cluster_id, 0, tallies)
