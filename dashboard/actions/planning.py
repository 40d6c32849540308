"""Make a `Plan` from an action and its subjects, for pages, admin and API: check permission, cluster and
number of subjects, then read the cluster. No request changes it.

`preview_plan` tells the effects of an offered action from our rows, for pages: they must not ask the cluster.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from django.conf import settings

from dashboard.actions import inspect, sink_batches
from dashboard.actions import store as action_store
from dashboard.actions.offers import marked_partition
from dashboard.actions.producers import describe_producers, producers_of_rows
from dashboard.models import Action, PartitionRecord, PinRecord
from dashboard.partitions.queries import partition_pins
from dashboard.runtime import visibility
from dashboard.streaming import queries as streaming_queries
from dashboard.system import access
from dashboard.system.access import Actor
from dashboard.system.owners import split_partition
from dashboard.transactions.queries import find_transaction, partitions_of
from fenceline.decode import text
from fenceline.decode.typed import record_of
from fenceline.facts import TopicPartition, expand_partitions
from fenceline.grouping import grouped
from fenceline.kafka.partitions import PartitionVerdict, ProducerState
from fenceline.plans import batches, flink_commits, markers, producers
from fenceline.plans.batches import plan_finish
from fenceline.plans.impact import HeldLog
from fenceline.plans.markers import plan_markers
from fenceline.plans.plan import MOST_SUBJECTS, Act, Plan, Refusal, SubjectPlan
from fenceline.plans.producers import plan_fence
from transaction_admin.api import AdminUnavailable
from transaction_admin.properties import CannotTranslate

#: Kafka's own limit on an id, in bytes.
_LONGEST_ID = 32_767
#: A topic's name, its partition, and the offset at which a transaction begins.
_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,8})(?:@(0|[1-9]\d{0,17}))?")
#: A query's identity and a batch's number.
_BATCH = re.compile(r"(.{1,80})@(0|[1-9]\d{0,17})")
_SHOWN = 100


class CannotPlan(Exception):
    """No plan can be made; the text is the problem and the remedy."""


#: Plans by subject, the texts to type for a single subject, and warnings.
_Planned = tuple[Sequence[SubjectPlan], Sequence[str], Sequence[str]]


def make_plan(cluster: str, act: Act, subjects: Sequence[str], *, force: bool, now_ms: int) -> Plan:
    """Return the plan of an action on subjects of a cluster in their current state.

    Subjects are transactional ids as escaped text (fence, commit_flink), `topic-partition` for all hanging
    transactions in it or `topic-partition@offset` for one (abort marker), `IDENT@BATCH` (finish and roll back
    batch). `force` removes the refusals that an admin may remove; the caller checks that the actor is one.
    Raises `CannotPlan` if no plan can be made at all; reasons against a single subject are its refusals.
    """
    names = _distinct(subjects)
    try:
        with inspect.connect_cluster(cluster, now_ms) as inspector:
            planned = _PLANNERS[act](inspector, names, force)
    except inspect.UnknownCluster as unknown:
        raise CannotPlan(f"{unknown}.") from None
    except (AdminUnavailable, CannotTranslate) as blind:
        raise CannotPlan(f"No plan can be made for {cluster}: {blind}.") from None
    return _assembled(cluster, act, planned, force=force, now_ms=now_ms)


def _distinct(subjects: Sequence[str]) -> Sequence[str]:
    """Return the distinct subjects. Raises `CannotPlan` without any, or with too many."""
    distinct = list(dict.fromkeys(subjects))
    if not distinct:
        raise CannotPlan("No subject is named: choose at least one.")
    if len(distinct) > MOST_SUBJECTS:
        raise CannotPlan(
            f"{len(distinct):,} subjects are named, and one plan takes {MOST_SUBJECTS} at most: make several."
        )
    return distinct


def _fence(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    described = describe_producers(inspector, list(dict.fromkeys(map(_transactional_id, names))))
    plans, ended = [], frozenset[int]()
    for producer in described:
        subject = producers.plan_fence(
            producer, now_ms=inspector.now_ms, limits=inspector.limits, ended=ended
        )
        plans.append(subject)
        if producer.producer_id is not None and _is_done(subject, force):
            ended |= {producer.producer_id}
    warned = producers.fencing_warnings(described, now_ms=inspector.now_ms)
    return plans, [producer.transactional_id for producer in described], list(warned)


def _commit_flink(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    described = describe_producers(inspector, list(dict.fromkeys(map(_transactional_id, names))))
    wanted = [producers.flink_transaction(producer) for producer in described]
    warned = list(flink_commits.flink_commit_warnings(wanted, now_ms=inspector.now_ms))
    plans = [flink_commits.plan_flink_commit(transaction) for transaction in wanted]
    return plans, [transaction.transactional_id for transaction in wanted], warned


def _transactional_id(name: str) -> str:
    """Return an id in its stored form. Raises `CannotPlan`."""
    try:
        raw = text.unescape_text(name)
    except ValueError as error:
        raise CannotPlan(f"{_shown(name)} is no transactional id: {error}.") from None
    if not raw or len(raw) > _LONGEST_ID:
        raise CannotPlan(
            f"{_shown(name)} is no transactional id: it has {len(raw):,} bytes, and Kafka takes 1 to "
            f"{_LONGEST_ID:,}."
        )
    return text.escape_bytes(raw)


def _abort_marker(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    places = [_place(name) for name in names]
    marked = inspect.inspect_partitions(inspector, list(dict.fromkeys(where for where, _ in places)))
    plans: dict[tuple[TopicPartition, int | None], SubjectPlan] = {}
    ended: dict[TopicPartition, frozenset[int]] = {}
    for where, offset in places:
        before = ended.get(where, frozenset())
        for subject in markers.plan_markers(marked[where], offset, ended=before):
            plans.setdefault((where, subject.seen["start_offset"]), subject)
            if _is_done(subject, force):
                ended[where] = ended.get(where, frozenset()) | {subject.seen["producer_id"]}
    subjects = list(plans.values())
    confirms = [_marker_confirm(marked[where], start) for where, start in plans]
    warned = list(markers.marker_warnings(list(marked.values()), now_ms=inspector.now_ms))
    if len(subjects) > MOST_SUBJECTS:
        left = len(subjects) - MOST_SUBJECTS
        warned.append(f"{left:,} more transactions hang there: make another plan for them after this one.")
    return subjects[:MOST_SUBJECTS], confirms[:MOST_SUBJECTS], warned


def _place(name: str) -> tuple[TopicPartition, int | None]:
    match = _PLACE.fullmatch(name)
    if match is None:
        raise CannotPlan(
            f"{_shown(name)} is no partition: write topic-partition (payments-0), or topic-partition@offset "
            "(payments-0@1204) for the transaction that begins there."
        )
    return TopicPartition(match[1], int(match[2])), None if match[3] is None else int(match[3])


def _marker_confirm(marked: markers.Marked, start: int | None) -> str:
    """Return the id of the transaction that begins at `start`, or `topic-partition` if unknown."""
    names = [pin.transactional_id for pin in marked.pins if pin.start_offset == start]
    return next(filter(None, names), str(marked.log.where))


def _finish_batch(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    facts = [sink_batches.inspect_batch(inspector, *_batch(name), finish=True) for name in names]
    warned = list(batches.finish_warnings(facts, now_ms=inspector.now_ms))
    return [batches.plan_finish(batch) for batch in facts], [batch.confirm for batch in facts], warned


def _roll_back_batch(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    facts = [sink_batches.inspect_batch(inspector, *_batch(name), finish=False) for name in names]
    plans = [batches.plan_roll_back(batch, now_ms=inspector.now_ms) for batch in facts]
    return plans, [batch.confirm for batch in facts], list(batches.roll_back_warnings(facts))


def _batch(name: str) -> tuple[str, int]:
    match = _BATCH.fullmatch(name)
    if match is None:
        raise CannotPlan(
            f"{_shown(name)} is no batch: write the query's identity, @ and the batch's number, as its page "
            "does."
        )
    return match[1], int(match[2])


_PLANNERS: Mapping[Act, Callable[[inspect.ClusterInspector, Sequence[str], bool], _Planned]] = {
    Act.FENCE: _fence,
    Act.ABORT_MARKER: _abort_marker,
    Act.FINISH_BATCH: _finish_batch,
    Act.ROLL_BACK_BATCH: _roll_back_batch,
    Act.COMMIT_FLINK: _commit_flink,
}


def _is_done(subject: SubjectPlan, force: bool) -> bool:
    """Whether a subject will be done, so that its transaction counts as ended for later subjects."""
    return not (_forced(subject) if force else subject).is_refused


def _assembled(cluster: str, act: Act, planned: _Planned, *, force: bool, now_ms: int) -> Plan:
    subjects, confirms, warnings = planned
    overridden: list[Refusal] = []
    if force:
        overridden = [refusal for subject in subjects for refusal in subject.refusals if refusal.forceable]
        subjects = [_forced(subject) for subject in subjects]
    made = Plan(act, cluster, now_ms, "", tuple(subjects), bool(overridden), tuple(overridden))
    doable = len(made.doable_subjects) or len(subjects)
    confirm = confirms[0] if len(subjects) == 1 else f"{cluster} {doable}"
    return replace(made, confirm=confirm, warnings=tuple(dict.fromkeys(warnings)))


def _forced(subject: SubjectPlan) -> SubjectPlan:
    return replace(subject, refusals=tuple(refusal for refusal in subject.refusals if not refusal.forceable))


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")


class NotPlanned(Exception):
    """No plan was made: an HTTP status for the kind of reason, and the reason."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def plan_for(
    actor: Actor, cluster: str, act: Act, subjects: Sequence[str], *, force: bool, now_ms: int
) -> Action:
    """Inspect the cluster, make a plan, and save it; no request changes the cluster.

    Raises `NotPlanned`: 403 no permission, 404 a cluster that is not configured, 400 no subjects or too many,
    and the reasons of `planning`.
    """
    known = any(row.name == cluster for row in visibility.configured_clusters())
    # The answer says that a cluster is read_only only if the actor may see that cluster.
    if why_not := access.act_refusal(actor, act, cluster if known else "", force=force):
        raise NotPlanned(403, why_not)
    if not known:
        raise NotPlanned(404, f"No cluster “{cluster[:80]}” is configured.")
    unique = list(dict.fromkeys(subjects))
    if not 1 <= len(unique) <= MOST_SUBJECTS:
        raise NotPlanned(400, f"A plan has 1 to {MOST_SUBJECTS} subjects, and these are {len(unique):,}.")
    try:
        plan = make_plan(cluster, act, unique, force=force, now_ms=now_ms)
    except CannotPlan as error:
        raise NotPlanned(409, str(error)) from error
    return action_store.save_plan(plan, actor)


def preview_plan(act: Act, cluster: str, subject: str, *, now_ms: int) -> SubjectPlan | None:
    """Return the plan of an offered action on one subject, None if it is refused or no longer known."""
    previews = {Act.FINISH_BATCH: _finish, Act.FENCE: _fence_preview, Act.ABORT_MARKER: _marker}
    plan = previews[act](cluster, subject, now_ms) if act in previews else None
    return None if plan is None or plan.is_refused else plan


def _finish(cluster: str, subject: str, now_ms: int) -> SubjectPlan | None:
    ident, _, number = subject.rpartition("@")
    query = streaming_queries.find_query(cluster, ident)
    if query is None or not number.isdecimal():
        return None
    batch = sink_batches.batch_of_rows(query, int(number), now_ms=now_ms)
    where = {partition for written in batch.open_transactions for partition in written.partitions}
    return plan_finish(replace(batch, logs=tuple(_logs(query.cluster_id, where))))


def _fence_preview(cluster: str, subject: str, now_ms: int) -> SubjectPlan | None:
    row = find_transaction(cluster, subject)
    if row is None:
        return None
    (producer,) = producers_of_rows([row], now_ms=now_ms)
    logs = tuple(_logs(row.cluster_id, set(expand_partitions(partitions_of(row)))))
    return plan_fence(replace(producer, logs=logs), now_ms=now_ms, limits=settings.FENCELINE.limits)


def _marker(cluster: str, subject: str, now_ms: int) -> SubjectPlan | None:
    name, _, offset = subject.partition("@")
    topic, number = split_partition(name) or ("", 0)
    row = PartitionRecord.objects.filter(cluster__name=cluster, topic=topic, partition=number).first()
    if row is None:
        return None
    place = row.cluster_id, row.topic, row.partition
    pins = partition_pins([place]).get(place, ())
    hanging = [pin for pin in pins if pin.verdict == PartitionVerdict.HANGING]
    marked = marked_partition(row.topic, row.partition, hanging)
    (log,) = _logs(row.cluster_id, {marked.log.where})
    start = int(offset) if offset.isdecimal() else None
    return next(iter(plan_markers(replace(marked, log=log), start)), None)


def _logs(cluster_id: int, wheres: Collection[TopicPartition]) -> Sequence[HeldLog]:
    """Return partitions from our collectors' last polls, with the blocked readers."""
    topics = {where.topic for where in wheres}
    rows = PartitionRecord.objects.filter(cluster=cluster_id, topic__in=topics)
    known = {TopicPartition(row.topic, row.partition): row for row in rows}
    pins = PinRecord.objects.filter(cluster=cluster_id, topic__in=topics).order_by("start_offset")
    opened = grouped(
        (TopicPartition(pin.topic, pin.partition), record_of(ProducerState, pin)) for pin in pins
    )
    lsos = {where: row.lso for where, row in known.items() if where in wheres and row.lso is not None}
    readers = inspect.readers_at(cluster_id, lsos)
    return [
        HeldLog(
            where,
            lsos[where],
            known[where].high_watermark,
            tuple(opened[where]),
            None,
            *readers.get(where, inspect.NOBODY),
        )
        if where in lsos
        else HeldLog(where, opened=tuple(opened[where]), unseen="its offsets have not been polled")
        for where in sorted(wheres)
    ]
