"""Tests by requests which rights our principal has on a cluster, and which requests its brokers support.

A broker checks a right before it looks up the resource, and answers for resources that it does not hold. So
each right is tried on an unused name, at any broker: it looks up no coordinator and creates nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeQuorumRequest,
    ListGroupsRequest,
)
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from fenceline.compat import SLOTS, zip_equal
from fenceline.kafka.acls import EVERY, Resource, Right, RightTrial, TrialVerdict
from transaction_admin.api import Unseen
from transaction_admin.connection import AdminConnection, error_name, explain_error, text_form

#: Codes of Kafka's AclOperation, AclPermissionType, ResourceType, ResourcePatternType, ConfigResource.
_ANY, _ALL, _DESCRIBE, _DENY = 1, 2, 8, 2
_TRANSACTIONAL_ID, _BROKER = 5, 4
_OPERATIONS = {7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS"}
#: OffsetFetch takes several groups from version 8 on, and topics by their ids from 10 on.
_MANY_GROUPS, _BY_NAME = 8, 9
_METADATA_TOPIC = "__cluster_metadata"
#: Brokers' errors that prove that we have the right.
_AFTER_THE_CHECK = (
    errors.NoError,
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.GroupIdNotFoundError,
    errors.LeaderNotAvailableError,
    errors.NotCoordinatorError,
    errors.NotLeaderForPartitionError,
    errors.SecurityDisabledError,
    errors.TransactionalIdNotFoundError,
    errors.UnknownTopicOrPartitionError,
)


@dataclass(frozen=True, **SLOTS)
class Abilities:
    """One broker's supported requests by key, with the lowest and highest version, and its features."""

    release: str
    requests: Mapping[int, tuple[int, int]]
    #: The finalized level of the whole cluster, by feature.
    features: Mapping[str, int]
    answered_ms: float


class Trials:
    """Trials on one cluster. `properties` are librdkafka's; a request waits up to `timeout_s`.

    Raises `CannotTranslate` for a property without an equivalent in kafka-python, `AdminUnavailable` if the
    cluster cannot be reached. No request writes or creates anything.
    """

    def __init__(self, properties: Mapping[str, str], timeout_s: float = 10.0) -> None:
        self._connection = AdminConnection(properties, timeout_s)
        self._nobody = f"fenceline-nobody-{secrets.token_hex(8)}"

    def close(self) -> None:
        self._connection.close()

    def list_brokers(self) -> Mapping[int, tuple[str, int]]:
        """Return the brokers by id, each with its advertised host and port."""
        return self._connection.brokers

    def broker_abilities(self, brokers: Collection[int]) -> Mapping[int, Abilities | Unseen]:
        """Return each broker's supported requests, and the duration of one more, short request."""
        answers = self._ask_each([(_versions_request(), broker) for broker in brokers])
        return dict(zip_equal(brokers, map(self._read_abilities, brokers, answers)))

    def _read_abilities(self, broker: int, answer: Any) -> Abilities | Unseen:
        name = f"broker {broker}"
        if isinstance(answer, errors.KafkaError):
            return Unseen(name, explain_error(answer))
        begun = time.monotonic()
        (again,) = self._ask_each([(_versions_request(), broker)])
        if isinstance(again, errors.KafkaError):
            return Unseen(name, explain_error(again))
        requests = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        features = {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
        known: tuple[int, ...] = infer_broker_version_from_api_versions(requests)
        newer = " or newer" if known == max(BROKER_API_VERSIONS) else ""
        release = f"Kafka {'.'.join(map(str, known))}{newer}"
        return Abilities(release, requests, features, (time.monotonic() - begun) * 1_000)

    def try_right(self, right: Right) -> RightTrial:
        """Return whether we have a right on a resource; without a name it is tried on an unused one."""
        ask, error_of = _TRIALS[right.operation, right.resource]
        name = right.name
        if name.endswith(EVERY):
            name = name[:-1] + self._nobody
        answer = self._ask(partial(ask, name))
        if isinstance(answer, errors.KafkaError):
            return RightTrial(TrialVerdict.INCONCLUSIVE, explain_error(answer))
        return _verdict_of(errors.for_code(error_of(answer)))

    def list_topics(self) -> Sequence[str]:
        """Return the topics that we may DESCRIBE, without internal ones."""
        answer = self._ask(partial(MetadataRequest, topics=None, allow_auto_topic_creation=False))
        if isinstance(answer, errors.KafkaError):
            return []
        return sorted(topic.name for topic in answer.topics if not topic.is_internal and not topic.error_code)

    def topic_exists(self, topic: str) -> bool | None:
        """Whether a topic exists that we may DESCRIBE; None if brokers do not tell."""
        answer = self._ask(partial(_metadata_request, topic))
        if isinstance(answer, errors.KafkaError):
            return None
        error = errors.for_code(answer.topics[0].error_code)
        known = (errors.NoError, errors.UnknownTopicOrPartitionError)
        return error is errors.NoError if error in known else None

    def unreadable_topics(self, topics: Collection[str]) -> Sequence[str]:
        """Return the topics among these that we may not READ."""
        answer = self._ask(partial(_producers_request, *topics))
        if isinstance(answer, errors.KafkaError):
            return []
        return [
            topic.name
            for topic in answer.topics
            if _verdict_of(errors.for_code(topic.partitions[0].error_code)).verdict is TrialVerdict.REFUSED
        ]

    def list_groups(self) -> Sequence[str]:
        """Return the escaped ids of the groups that brokers list for us."""
        answers = self._ask_everybody(partial(ListGroupsRequest, states_filter=[], types_filter=[]))
        return [text_form(group.group_id) for answer in answers for group in answer.groups]

    def transactional_ids(self) -> Sequence[str]:
        """Return the escaped ids that brokers list for us. O(ids) on every broker."""
        answers = self._ask_everybody(
            partial(ListTransactionsRequest, state_filters=[], producer_id_filters=[])
        )
        return [
            text_form(transaction.transactional_id)
            for answer in answers
            for transaction in answer.transaction_states
        ]

    def hiding_acls(self) -> Sequence[tuple[str, str]] | Unseen:
        """Return the ACLs that hide transactional ids; needs DESCRIBE on the cluster.

        Each as its principal, and a name or a prefix of names.
        """
        answer = self._ask(partial(_acls_request, ""))
        if isinstance(answer, errors.KafkaError):
            return Unseen("ACLs", explain_error(answer))
        error = errors.for_code(answer.error_code)
        if error is errors.SecurityDisabledError:
            return []
        if error is not errors.NoError:
            return Unseen("ACLs", error_name(error))
        return [
            (acl.principal, resource.resource_name)
            for resource in answer.resources
            for acl in resource.acls
            if acl.operation in (_ALL, _DESCRIBE)
        ]

    def is_open(self) -> bool:
        """Whether the cluster has no authorizer, so that every client may do everything."""
        answer = self._ask(partial(_acls_request, ""))
        if isinstance(answer, errors.KafkaError):
            return False
        return errors.for_code(answer.error_code) is errors.SecurityDisabledError

    def cluster_operations(self) -> Collection[str] | Unseen:
        """Return our allowed operations on the cluster; needs DESCRIBE on the cluster."""
        answer = self._ask(partial(DescribeClusterRequest, include_cluster_authorized_operations=True))
        if isinstance(answer, errors.KafkaError):
            return Unseen("cluster", explain_error(answer))
        if not answer.authorized_operations:
            return Unseen("cluster", "the broker does not return them without DESCRIBE on the cluster")
        return {_OPERATIONS[code] for code in answer.authorized_operations if code in _OPERATIONS}

    def broker_settings(
        self, brokers: Collection[int], names: Sequence[str]
    ) -> Mapping[int, Mapping[str, str]]:
        """Return settings of brokers, without refused brokers and unknown settings."""
        answers = self._ask_each([(_settings_request(str(broker), *names), broker) for broker in brokers])
        return {
            broker: {setting.name: setting.value for setting in answer.results[0].configs}
            for broker, answer in zip_equal(brokers, answers)
            if not isinstance(answer, errors.KafkaError) and not answer.results[0].error_code
        }

    def controller_clock(self) -> tuple[float, float] | Unseen:
        """Return how far the active controller's clock is ahead of ours, and the uncertainty, in ms.

        Needs DESCRIBE on the cluster. The controller reports itself as caught up at the instant of the
        request (KIP-836).
        """
        begun, at = time.monotonic(), time.time() * 1_000
        answer = self._ask(_quorum_request)
        spent_ms = (time.monotonic() - begun) * 1_000
        if isinstance(answer, errors.KafkaError):
            return Unseen("clock", explain_error(answer))
        if answer.error_code:
            return Unseen("clock", error_name(errors.for_code(answer.error_code)))
        quorum = answer.topics[0].partitions[0]
        leaders = (voter for voter in quorum.current_voters if voter.replica_id == quorum.leader_id)
        leader = next(leaders, None)
        if leader is None or leader.last_caught_up_timestamp < 0:
            return Unseen("clock", "this release does not report it")
        return leader.last_caught_up_timestamp - (at + spent_ms / 2), spent_ms / 2

    def _ask(self, make: Callable[[], Any]) -> Any:
        async def ask() -> Any:
            try:
                return await self._connection.send_to_any(make)
            except errors.KafkaError as error:
                return error

        return self._connection.run(ask)

    def _ask_each(self, questions: Sequence[tuple[Any, int]]) -> Sequence[Any]:
        return self._connection.run(self._connection.send_each, questions)

    def _ask_everybody(self, make: Callable[[], Any]) -> Sequence[Any]:
        """Ask every broker; return the answers that arrive."""
        answers = self._ask_each([(make(), broker) for broker in self.list_brokers()])
        return [answer for answer in answers if not isinstance(answer, errors.KafkaError)]


def _verdict_of(error: Any) -> RightTrial:
    if issubclass(error, errors.AuthorizationError):
        return RightTrial(TrialVerdict.REFUSED)
    if error in _AFTER_THE_CHECK:
        return RightTrial(TrialVerdict.GRANTED)
    return RightTrial(TrialVerdict.INCONCLUSIVE, f"the broker answers {error_name(error)}")


def _versions_request() -> Any:
    return ApiVersionsRequest(client_software_name="fenceline", client_software_version="1")


def _metadata_request(topic: str) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)


def _producers_request(*topics: str) -> Any:
    topic_of = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(topics=[topic_of(name=topic, partition_indexes=[0]) for topic in topics])


def _offsets_request(name: str) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    return OffsetFetchRequest(
        groups=[group], require_stable=True, min_version=_MANY_GROUPS, max_version=_BY_NAME
    )


def _acls_request(_: str) -> Any:
    return DescribeAclsRequest(
        resource_type_filter=_TRANSACTIONAL_ID,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_DENY,
    )


def _settings_request(broker: str, *names: str) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = resource(resource_type=_BROKER, resource_name=broker, configuration_keys=list(names))
    return DescribeConfigsRequest(resources=[wanted])


def _quorum_request() -> Any:
    topic = DescribeQuorumRequest.TopicData
    partition = topic.PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[topic(topic_name=_METADATA_TOPIC, partitions=[partition])])


#: The request that tries an operation on a named resource, and the place of its error code. Settings without
#: a broker's id are the cluster's defaults: any broker returns them.
_TRIALS: Mapping[tuple[str, Resource], tuple[Callable[[str], Any], Callable[[Any], int]]] = {
    ("DESCRIBE", Resource.TOPIC): (_metadata_request, lambda answer: answer.topics[0].error_code),
    ("READ", Resource.TOPIC): (_producers_request, lambda answer: answer.topics[0].partitions[0].error_code),
    ("DESCRIBE", Resource.TRANSACTIONAL_ID): (
        lambda name: DescribeTransactionsRequest(transactional_ids=[name]),
        lambda answer: answer.transaction_states[0].error_code,
    ),
    ("DESCRIBE", Resource.GROUP): (_offsets_request, lambda answer: answer.groups[0].error_code),
    ("DESCRIBE", Resource.CLUSTER): (_acls_request, lambda answer: answer.error_code),
    ("DESCRIBE_CONFIGS", Resource.CLUSTER): (_settings_request, lambda answer: answer.results[0].error_code),
}
