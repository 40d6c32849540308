"""Examine a cluster: requests that its brokers offer, rights tried one by one, internal topics."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from collectors.doctor.checks import CheckStatus, DoctorCheck, Patient
from fenceline.kafka.acls import Resource, Right, RightTrial, TrialVerdict
from fenceline.kafka.capabilities import CapabilityCheck, CapabilityState, ClusterSight, check_capabilities
from transaction_admin.acl_probe import Abilities, Trials
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE, Unseen

_STATUSES = {
    CapabilityState.WORKS: CheckStatus.OK,
    CapabilityState.LIMITED: CheckStatus.WARN,
    CapabilityState.MISSING: CheckStatus.FAIL,
    CapabilityState.UNKNOWN: CheckStatus.SKIP,
}
#: Requests that no page needs.
_OPTIONAL = frozenset({"share_groups", "hidden_ids", "settings", "fence", "abort_markers"})
_GRANTED = RightTrial(TrialVerdict.GRANTED)
_NOT_TRIED = "not tried, a trial would act"


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
    """Yield a check of each capability."""
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
