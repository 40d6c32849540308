"""Try every right on a cluster, and name missing ones with the `kafka-acls` line that grants them.

Rights that only an action would show are not tried: brokers report the allowed operations.
"""

import shlex
from collections.abc import Iterator, Sequence

from collectors.doctor.checks import CheckStatus, DoctorCheck, Patient
from fenceline.formatting import count_noun, list_names
from fenceline.kafka.acls import EVERY, TO_LOOK, TO_WRITE_MARKERS, Resource, Right, TrialVerdict
from fenceline.kafka.capabilities import ClusterSight
from transaction_admin.acl_probe import Trials
from transaction_admin.api import Unseen

#: Maximum topics tried by name.
_MOST_TOPICS = 1_000
_LEFT_OUT = "brokers leave out the others without an error"
#: The right to read ACLs.
_CLUSTER = next(right for right in TO_LOOK if right.resource is Resource.CLUSTER)


def check_read_rights(patient: Patient, trials: Trials, sight: ClusterSight) -> Iterator[DoctorCheck]:
    """Yield a check of each right for reading, in order."""
    for right in patient.rights_to_look:
        tried = sight.rights[right]
        what = str(right)
        if tried.verdict is TrialVerdict.GRANTED:
            yield from _granted(patient, trials, right, sight)
        elif tried.verdict is TrialVerdict.INCONCLUSIVE:
            yield DoctorCheck(CheckStatus.WARN, what, f"the trial is inconclusive: {tried.reason}")
        else:
            yield _refused(patient, trials, right)


def _granted(patient: Patient, trials: Trials, right: Right, sight: ClusterSight) -> Iterator[DoctorCheck]:
    what = str(right)
    if not sight.topics.get(right.name, True):
        yield _absent(what, sight.listed[right.name])
    elif right.resource is Resource.TRANSACTIONAL_ID:
        yield _hidden_ids(patient, trials, what)
    elif right.operation == "READ" and right.name.endswith(EVERY):
        yield _read_of_all(patient, trials, right)
    else:
        yield DoctorCheck(CheckStatus.OK, what, "granted")


def _absent(what: str, listed: int) -> DoctorCheck:
    """Check an internal topic that does not exist: it would hold the listed ids or groups."""
    if listed:
        what_is_listed = f"this broker keeps no such topic, though it lists {listed:,} of what belongs in it"
        return DoctorCheck(CheckStatus.WARN, what, f"granted, but {what_is_listed}")
    return DoctorCheck(
        CheckStatus.OK, what, "granted; the topic does not exist yet, and asking has not made it"
    )


def _hidden_ids(patient: Patient, trials: Trials, what: str) -> DoctorCheck:
    """Check whether an ACL could hide an id: brokers omit hidden ids from lists without an error."""
    denials = trials.hiding_acls()
    if isinstance(denials, Unseen):
        if patient.sees_all_ids:
            return DoctorCheck(
                CheckStatus.OK, what, "granted; the configuration declares that no id is hidden"
            )
        detail = "granted, but that no single id is denied cannot be proved without DESCRIBE on the cluster"
        return DoctorCheck(CheckStatus.WARN, what, detail, _remedies(patient, _CLUSTER))
    us = (patient.principal, "User:*")
    ours = {denial.name for denial in denials if "User:…" in us or denial.principal in us}
    if not ours:
        return DoctorCheck(CheckStatus.OK, what, "granted, and no ACL hides an id")
    detail = f"granted, but ACLs hide {list_names(sorted(ours))}: nothing can be called hanging"
    return DoctorCheck(CheckStatus.WARN, what, detail, _listed(patient, "--transactional-id", sorted(ours)))


def _read_of_all(patient: Patient, trials: Trials, right: Right) -> DoctorCheck:
    topics = _topics_within(patient, trials)
    denied = trials.unreadable_topics(topics) if topics else []
    if not denied:
        return DoctorCheck(
            CheckStatus.OK, str(right), f"granted; {count_noun(len(topics), 'topic')} tried by name"
        )
    detail = f"granted, but an ACL denies {list_names(denied)}"
    return DoctorCheck(CheckStatus.FAIL, str(right), detail, _listed(patient, "--topic", denied))


def _topics_within(patient: Patient, trials: Trials) -> Sequence[str]:
    topics = [topic for topic in trials.list_topics() if patient.scope.has_topic(topic)]
    return topics[:_MOST_TOPICS]


def _refused(patient: Patient, trials: Trials, right: Right) -> DoctorCheck:
    detail, partly = f"missing. Without it: {right.dark}", ""
    if right.name == EVERY:
        partly = _seen(patient, trials, right)
    if right.resource is Resource.TRANSACTIONAL_ID and patient.sees_all_ids:
        partly += ". The configuration declares sees_all_transactional_ids: make sure of it"
    soft = partly or not right.needed
    status = CheckStatus.WARN if soft else CheckStatus.FAIL
    return DoctorCheck(status, str(right), detail + partly, _remedies(patient, right))


def _seen(patient: Patient, trials: Trials, right: Right) -> str:
    """Return what narrower grants still show; "" for nothing."""
    if right.operation == "READ":
        topics = _topics_within(patient, trials)
        denied = trials.unreadable_topics(topics) if topics else []
        able = len(topics) - len(denied)
        but = f", not of {list_names(denied)}" if denied else ""
        return f". Granted on {count_noun(able, 'topic')} by name{but}" if able else ""
    see = {
        Resource.TOPIC: (trials.list_topics, "topic"),
        Resource.GROUP: (trials.list_groups, "group"),
        Resource.TRANSACTIONAL_ID: (trials.transactional_ids, "transactional id"),
    }
    ask, noun = see[right.resource]
    number = len(ask())
    return f". {count_noun(number, noun)} can be seen by narrower grants; {_LEFT_OUT}" if number else ""


def check_action_rights(patient: Patient, sight: ClusterSight) -> Iterator[DoctorCheck]:
    """Yield a check of each right for ending a transaction, without trying it."""
    for right in patient.rights_to_act:
        alternative = " (or CLUSTER_ACTION)" if right == TO_WRITE_MARKERS else ""
        trial, what = sight.rights[right], f"act: {right}{alternative}"
        optional = f"optional. Without it: {right.dark}"
        if trial.verdict is TrialVerdict.GRANTED:
            yield DoctorCheck(
                CheckStatus.OK, what, "granted, by the broker's own word; not tried, a trial would act"
            )
        else:
            reason = trial.reason or "missing, by the broker's answer"
            yield DoctorCheck(CheckStatus.SKIP, what, f"{reason}; {optional}", _remedies(patient, right))


def _remedies(patient: Patient, right: Right) -> tuple[str, ...]:
    return (patient.grants[right],)


def _listed(patient: Patient, option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return commands that list the ACLs on resources: an operator must remove a DENY."""
    return tuple(
        f"kafka-acls --list {option} {shlex.quote(name)} --resource-pattern-type match "
        f"{patient.bootstrap_option}"
        for name in names[:3]
    )
