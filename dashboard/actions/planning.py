"""One entry point: an action and its subjects in, a `Plan` out. It only reads."""

from __future__ import annotations

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

#: Kafka's own bound of an id, in bytes.
_LONGEST_ID = 32_767
#: A topic's name, its partition, and the offset at which a transaction begins.
_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,8})(?:@(0|[1-9]\d{0,17}))?")
#: A query's identity and a batch's number.
_BATCH = re.compile(r"(.{1,80})@(0|[1-9]\d{0,17})")
_SHOWN = 100


class CannotPlan(Exception):
    """No plan can be made; the text is the problem and the remedy."""


class _Planned(NamedTuple):
    """What an act would do, subject by subject, and what is to be typed where it is one."""

    subjects: Sequence[SubjectPlan]
    confirms: Sequence[str]
    warnings: Sequence[str]


def make_plan(cluster: str, act: Act, subjects: Sequence[str], *, force: bool, now_ms: int) -> Plan:
    """Return what an act would do to some subjects of a cluster, as they are now.

    Subjects are transactional ids as escaped text (fence, commit_flink), `topic-partition` for all that hangs
    in it or `topic-partition@offset` for one transaction (abort marker), `IDENT@BATCH` (finish and roll back
    batch).
    `force` takes away what only an admin may take away; whether somebody is one, the caller has asked.
    Raises `CannotPlan` where no plan can be made at all; the reasons against one subject are its refusals.
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
    """Return each subject once. Raises `CannotPlan` for none and for too many."""
    found = list(dict.fromkeys(subjects))
    if not found:
        raise CannotPlan("No subject is named: choose at least one.")
    if len(found) > MOST_SUBJECTS:
        raise CannotPlan(
            f"{len(found):,} subjects are named, and one plan takes {MOST_SUBJECTS} at most: make several."
        )
    return found


def _fence(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    found = describe_producers(inspector, list(dict.fromkeys(map(_transactional_id, names))))
    plans, ended = [], frozenset[int]()
    for each in found:
        subject = producers.plan_fence(each, now_ms=inspector.now_ms, limits=inspector.limits, ended=ended)
        plans.append(subject)
        if each.producer_id is not None and _is_done(subject, force):
            ended |= {each.producer_id}
    warned = producers.fencing_warnings(found, now_ms=inspector.now_ms)
    return _Planned(plans, [each.transactional_id for each in found], list(warned))


def _commit_flink(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    found = describe_producers(inspector, list(dict.fromkeys(map(_transactional_id, names))))
    wanted = [producers.flink_transaction(each) for each in found]
    warned = list(flink_commits.flink_commit_warnings(wanted, now_ms=inspector.now_ms))
    plans = [flink_commits.plan_flink_commit(each) for each in wanted]
    return _Planned(plans, [each.transactional_id for each in wanted], warned)


def _transactional_id(name: str) -> str:
    """Return an id in the one form that it is stored in. Raises `CannotPlan`."""
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
    found = inspect.inspect_partitions(inspector, list(dict.fromkeys(where for where, _ in places)))
    plans: dict[tuple[TopicPartition, int | None], SubjectPlan] = {}
    ended: dict[TopicPartition, frozenset[int]] = {}
    for where, offset in places:
        before = ended.get(where, frozenset())
        for each in markers.plan_markers(found[where], offset, ended=before):
            plans.setdefault((where, each.seen["start_offset"]), each)
            if _is_done(each, force):
                ended[where] = ended.get(where, frozenset()) | {each.seen["producer_id"]}
    subjects = list(plans.values())
    confirms = [_marker_confirm(found[where], start) for where, start in plans]
    warned = list(markers.marker_warnings(list(found.values()), now_ms=inspector.now_ms))
    if len(subjects) > MOST_SUBJECTS:
        left = len(subjects) - MOST_SUBJECTS
        warned.append(f"{left:,} more transactions hang there: make another plan for them after this one.")
    return _Planned(subjects[:MOST_SUBJECTS], confirms[:MOST_SUBJECTS], warned)


def _place(name: str) -> tuple[TopicPartition, int | None]:
    found = _PLACE.fullmatch(name)
    if found is None:
        raise CannotPlan(
            f"{_shown(name)} is no partition: write topic-partition (payments-0), or topic-partition@offset "
            "(payments-0@1204) for the transaction that begins there."
        )
    return TopicPartition(found[1], int(found[2])), None if found[3] is None else int(found[3])


def _marker_confirm(marked: markers.Marked, start: int | None) -> str:
    """Return the id whose transaction begins there, `topic-partition` where none is known."""
    names = [pin.transactional_id for pin in marked.pins if pin.start_offset == start]
    return next(filter(None, names), str(marked.log.where))


def _finish_batch(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    found = [sink_batches.inspect_batch(inspector, *_batch(name), finish=True) for name in names]
    warned = list(batches.finish_warnings(found, now_ms=inspector.now_ms))
    return _Planned([batches.plan_finish(each) for each in found], [each.confirm for each in found], warned)


def _roll_back_batch(inspector: inspect.ClusterInspector, names: Sequence[str], force: bool) -> _Planned:
    found = [sink_batches.inspect_batch(inspector, *_batch(name), finish=False) for name in names]
    plans = [batches.plan_roll_back(each, now_ms=inspector.now_ms) for each in found]
    return _Planned(plans, [each.confirm for each in found], list(batches.roll_back_warnings(found)))


def _batch(name: str) -> tuple[str, int]:
    found = _BATCH.fullmatch(name)
    if found is None:
        raise CannotPlan(
            f"{_shown(name)} is no batch: write the query's identity, @ and the batch's number, as its page "
            "does."
        )
    return found[1], int(found[2])


_PLANNERS: Mapping[Act, Callable[[inspect.ClusterInspector, Sequence[str], bool], _Planned]] = {
    Act.FENCE: _fence,
    Act.ABORT_MARKER: _abort_marker,
    Act.FINISH_BATCH: _finish_batch,
    Act.ROLL_BACK_BATCH: _roll_back_batch,
    Act.COMMIT_FLINK: _commit_flink,
}


def _is_done(subject: SubjectPlan, force: bool) -> bool:
    """Whether a subject is one that will be done: what comes after it finds it ended."""
    return not (_forced(subject) if force else subject).is_refused


def _assembled(cluster: str, act: Act, planned: _Planned, *, force: bool, now_ms: int) -> Plan:
    subjects = list(planned.subjects)
    overridden: list[Refusal] = []
    if force:
        overridden = [each for subject in subjects for each in subject.refusals if each.forceable]
        subjects = [_forced(subject) for subject in subjects]
    made = Plan(act, cluster, now_ms, "", tuple(subjects), bool(overridden), tuple(overridden))
    doable = len(made.doable_subjects) or len(subjects)
    confirm = planned.confirms[0] if len(subjects) == 1 else f"{cluster} {doable}"
    return replace(made, confirm=confirm, warnings=tuple(dict.fromkeys(planned.warnings)))


def _forced(subject: SubjectPlan) -> SubjectPlan:
    return replace(subject, refusals=tuple(each for each in subject.refusals if not each.forceable))


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
