"""The entry point of planning: make a `Plan` from an action and its subjects, by reads only."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dashboard.actions import inspect, sink_batches
from dashboard.actions.producers import describe_producers
from fenceline.decode import text
from fenceline.facts import TopicPartition
from fenceline.plans import batches, flink_commits, markers, producers
from fenceline.plans.plan import MOST_SUBJECTS, Act, Plan, Refusal, SubjectPlan
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


class _Planned(NamedTuple):
    """Plans by subject, and the texts to type for a single subject."""

    subjects: Sequence[SubjectPlan]
    confirms: Sequence[str]
    warnings: Sequence[str]


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
    return _Planned(plans, [producer.transactional_id for producer in described], list(warned))


def _commit_flink(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    described = describe_producers(inspector, list(dict.fromkeys(map(_transactional_id, names))))
    wanted = [producers.flink_transaction(producer) for producer in described]
    warned = list(flink_commits.flink_commit_warnings(wanted, now_ms=inspector.now_ms))
    plans = [flink_commits.plan_flink_commit(transaction) for transaction in wanted]
    return _Planned(plans, [transaction.transactional_id for transaction in wanted], warned)


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
    return _Planned(subjects[:MOST_SUBJECTS], confirms[:MOST_SUBJECTS], warned)


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
    return _Planned(
        [batches.plan_finish(batch) for batch in facts], [batch.confirm for batch in facts], warned
    )


def _roll_back_batch(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    facts = [sink_batches.inspect_batch(inspector, *_batch(name), finish=False) for name in names]
    plans = [batches.plan_roll_back(batch, now_ms=inspector.now_ms) for batch in facts]
    return _Planned(plans, [batch.confirm for batch in facts], list(batches.roll_back_warnings(facts)))


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
    subjects = list(planned.subjects)
    overridden: list[Refusal] = []
    if force:
        overridden = [refusal for subject in subjects for refusal in subject.refusals if refusal.forceable]
        subjects = [_forced(subject) for subject in subjects]
    made = Plan(act, cluster, now_ms, "", tuple(subjects), bool(overridden), tuple(overridden))
    doable = len(made.doable_subjects) or len(subjects)
    confirm = planned.confirms[0] if len(subjects) == 1 else f"{cluster} {doable}"
    return replace(made, confirm=confirm, warnings=tuple(dict.fromkeys(planned.warnings)))


def _forced(subject: SubjectPlan) -> SubjectPlan:
    return replace(subject, refusals=tuple(refusal for refusal in subject.refusals if not refusal.forceable))


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
