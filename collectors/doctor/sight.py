"""Examine a cluster: requests that its brokers offer, rights tried one by one, internal topics. A check has a
status, a result and a remedy: a missing right has the `kafka-acls` line that grants it.

Rights that only an action would show are not tried: brokers report the allowed operations.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from fenceline.formatting import count_noun, list_names
from fenceline.kafka.acls import (
    EVERY,
    TO_END,
    TO_LOOK,
    TO_WRITE_MARKERS,
    Resource,
    Right,
    RightTrial,
    TrialVerdict,
    rights_within,
)
from fenceline.kafka.capabilities import CapabilityCheck, CapabilityState, ClusterSight, check_capabilities
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.acl_probe import Abilities, Trials
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE, Unseen, grant_command

#: Requests that no page needs.
_OPTIONAL = frozenset({"share_groups", "hidden_ids", "settings", "fence", "abort_markers"})
_GRANTED = RightTrial(TrialVerdict.GRANTED)
_NOT_TRIED = "not tried, a trial would act"
#: Maximum topics tried by name.
_MOST_TOPICS = 1_000
_LEFT_OUT = "brokers leave out the others without an error"
#: The right to read ACLs.
_CLUSTER = next(right for right in TO_LOOK if right.resource is Resource.CLUSTER)


class CheckStatus(StrEnum):
    """The status of a check; `skip`: it could not be made, and its detail is the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"


_STATUSES = {
    CapabilityState.WORKS: CheckStatus.OK,
    CapabilityState.LIMITED: CheckStatus.WARN,
    CapabilityState.MISSING: CheckStatus.FAIL,
    CapabilityState.UNKNOWN: CheckStatus.SKIP,
}


class DoctorCheck(NamedTuple):
    """One check: its subject, its result, and lines that correct a problem."""

    status: CheckStatus
    what: str
    detail: str
    remedies: tuple[str, ...] = ()


ok, warn = partial(DoctorCheck, CheckStatus.OK), partial(DoctorCheck, CheckStatus.WARN)
fail, skip = partial(DoctorCheck, CheckStatus.FAIL), partial(DoctorCheck, CheckStatus.SKIP)


@dataclass(frozen=True, slots=True)
class Patient:
    """A cluster to examine: librdkafka's properties, and the timeout of a request."""

    properties: Mapping[str, str]
    #: Whether the operator vouches that no transactional id is hidden from this principal.
    sees_all_ids: bool
    timeout_s: float
    scope: Scope = EVERYTHING

    @property
    def protocol(self) -> str:
        """Return the security protocol in capitals."""
        return self.properties.get("security.protocol", "plaintext").upper()

    @property
    def principal(self) -> str:
        """Return our principal at the brokers; `User:…` if only they know it."""
        if "SASL" in self.protocol:
            return f"User:{self.properties.get('sasl.username', '…')}"
        return "User:ANONYMOUS" if self.protocol == "PLAINTEXT" else "User:…"

    @property
    def bootstrap_servers(self) -> str:
        return self.properties["bootstrap.servers"]

    @property
    def bootstrap_option(self) -> str:
        """Return the option that names the cluster to Kafka's tools."""
        return f"--bootstrap-server {self.bootstrap_servers.replace(' ', '')}"

    @property
    def grants(self) -> Mapping[Right, str]:
        """Return the line that grants each right that Fenceline uses."""
        who = shlex.quote(self.principal)
        where = self.bootstrap_option
        return {
            right: f"{grant_command(who, right.operation_name, right.resource_option)} {where}"
            for right in (*self.rights_to_look, *self.rights_to_act)
        }

    @property
    def rights_to_look(self) -> Sequence[Right]:
        """Return the rights for reading within the scope."""
        return rights_within(TO_LOOK, self.scope.patterns)

    @property
    def rights_to_act(self) -> Sequence[Right]:
        ids = {Resource.TRANSACTIONAL_ID: self.scope.transactional_ids}
        return rights_within((TO_WRITE_MARKERS, TO_END), ids)


def look_over(patient: Patient, trials: Trials, able: Mapping[int, Abilities | Unseen]) -> ClusterSight:
    """Return a cluster's visible capabilities; `able`: its brokers' answers. Raises `AdminUnavailable`."""
    rights = {right: trials.try_right(right) for right in patient.rights_to_look}
    rights |= _rights_to_act(patient, trials)
    described = {right.name for right, trial in rights.items() if _is_described(right, trial)}
    topics = {
        topic: exists
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS)
        if topic in described and (exists := trials.topic_exists(topic)) is not None
    }
    lists = {TRANSACTION_STATE: trials.transactional_ids, CONSUMER_OFFSETS: trials.list_groups}
    return ClusterSight(
        requests={broker: _highest_versions(answer) for broker, answer in able.items()},
        rights=rights,
        topics=topics,
        listed={topic: len(lists[topic]()) for topic, exists in topics.items() if not exists},
    )


def probe_capabilities(patient: Patient) -> list[CapabilityCheck]:
    """Return every capability on a cluster. Raises `AdminUnavailable` and `CannotTranslate`."""
    with closing(Trials(patient.properties, patient.timeout_s)) as trials:
        sight = look_over(patient, trials, trials.broker_abilities(trials.list_brokers()))
    return list(check_capabilities(sight, patient.grants))


def doctor_checks(patient: Patient, sight: ClusterSight) -> Iterator[DoctorCheck]:
    for check in check_capabilities(sight, patient.grants):
        status = _STATUSES[check.state]
        if status is CheckStatus.FAIL and check.name in _OPTIONAL:
            status = CheckStatus.WARN
        detail = f"{check.state}: {check.why}" if check.why else check.state
        yield DoctorCheck(status, f"can show or do: {check.words}", detail, check.remedies)


def _is_described(right: Right, trial: RightTrial) -> bool:
    named = right.operation == "DESCRIBE" and right.resource is Resource.TOPIC
    return named and trial.verdict is TrialVerdict.GRANTED


def _highest_versions(answer: Abilities | Unseen) -> Mapping[int, int] | None:
    if isinstance(answer, Unseen):
        return None
    return {key: highest for key, (_, highest) in answer.requests.items()}


def _rights_to_act(patient: Patient, trials: Trials) -> Mapping[Right, RightTrial]:
    """Return the rights that only an action would exercise, as brokers report them."""
    if trials.is_open():
        return dict.fromkeys(patient.rights_to_act, _GRANTED)
    not_tried = RightTrial(TrialVerdict.INCONCLUSIVE, _NOT_TRIED)
    operations = trials.cluster_operations()
    if isinstance(operations, Unseen):
        markers = RightTrial(TrialVerdict.INCONCLUSIVE, f"{_NOT_TRIED} ({operations.reason})")
    elif {"ALTER", "CLUSTER_ACTION"}.isdisjoint(operations):
        markers = RightTrial(TrialVerdict.REFUSED)
    else:
        markers = _GRANTED
    return {
        right: markers if right.resource is Resource.CLUSTER else not_tried for right in patient.rights_to_act
    }


def check_read_rights(patient: Patient, trials: Trials, sight: ClusterSight) -> Iterator[DoctorCheck]:
    for right in patient.rights_to_look:
        tried = sight.rights[right]
        what = str(right)
        if tried.verdict is TrialVerdict.GRANTED:
            yield from _granted(patient, trials, right, sight)
        elif tried.verdict is TrialVerdict.INCONCLUSIVE:
            yield warn(what, f"the trial is inconclusive: {tried.reason}")
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
        yield ok(what, "granted")


def _absent(what: str, listed: int) -> DoctorCheck:
    """Check an internal topic that does not exist: it would hold the listed ids or groups."""
    if listed:
        what_is_listed = f"this broker keeps no such topic, though it lists {listed:,} of what belongs in it"
        return warn(what, f"granted, but {what_is_listed}")
    return ok(what, "granted; the topic does not exist yet, and asking has not made it")


def _hidden_ids(patient: Patient, trials: Trials, what: str) -> DoctorCheck:
    """Check whether an ACL could hide an id: brokers omit hidden ids from lists without an error."""
    denials = trials.hiding_acls()
    if isinstance(denials, Unseen):
        if patient.sees_all_ids:
            return ok(what, "granted; the configuration declares that no id is hidden")
        detail = "granted, but that no single id is denied cannot be proved without DESCRIBE on the cluster"
        return warn(what, detail, (patient.grants[_CLUSTER],))
    us = (patient.principal, "User:*")
    ours = {name for principal, name in denials if "User:…" in us or principal in us}
    if not ours:
        return ok(what, "granted, and no ACL hides an id")
    detail = f"granted, but ACLs hide {list_names(sorted(ours))}: nothing can be called hanging"
    return warn(what, detail, _listed(patient, "--transactional-id", sorted(ours)))


def _read_of_all(patient: Patient, trials: Trials, right: Right) -> DoctorCheck:
    topics = _topics_within(patient, trials)
    denied = trials.unreadable_topics(topics) if topics else []
    if not denied:
        return ok(str(right), f"granted; {count_noun(len(topics), 'topic')} tried by name")
    detail = f"granted, but an ACL denies {list_names(denied)}"
    return fail(str(right), detail, _listed(patient, "--topic", denied))


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
    return DoctorCheck(status, str(right), detail + partly, (patient.grants[right],))


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
            yield ok(what, "granted, by the broker's own word; not tried, a trial would act")
        else:
            reason = trial.reason or "missing, by the broker's answer"
            yield skip(what, f"{reason}; {optional}", (patient.grants[right],))


def _listed(patient: Patient, option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return commands that list the ACLs on resources: an operator must remove a DENY."""
    return tuple(
        f"kafka-acls --list {option} {shlex.quote(name)} --resource-pattern-type match "
        f"{patient.bootstrap_option}"
        for name in names[:3]
    )
