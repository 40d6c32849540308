"""Reads of a cluster beyond transactions: offsets, producers, groups, batches, settings, in few requests.

Every answer includes partial failures: a missing broker or partition is `Unseen` in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin import DescribeConfigsRequest, DescribeLogDirsRequest, DescribeProducersRequest

from fenceline.engines.status import StreamsStore
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets, ProducerState
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import Batches, Commits, Cost, GroupListing, ShareProgresses, Topology, Unseen
from transaction_admin.connection import AdminConnection, wire_form
from transaction_admin.coordinators import OwnerQuestions
from transaction_admin.kafka_groups import Groups
from transaction_admin.leaders import Leaders, PartitionError, Question, Topics
from transaction_admin.partition_requests import (
    COMMITTED,
    EARLIEST,
    LATEST,
    NONE,
    UNCOMMITTED,
    fetch_request,
    offset_request,
    parse_batches,
)

#: Log start, LSO, high watermark: requested in this order, each is at least the one before it.
_IN_ORDER = ((UNCOMMITTED, EARLIEST), (COMMITTED, LATEST), (UNCOMMITTED, LATEST))
_TOPIC_RESOURCE, _BROKER_RESOURCE, _GROUP_RESOURCE = 2, 4, 32

#: Topic and partition -> error code, offset, leader epoch.
_Offsets = dict[tuple[str, int], tuple[int, int, int]]


class ClusterReads:
    """Reads of one cluster. `properties` are librdkafka's; a request waits up to `timeout_s`.

    Topics, groups and ids outside `scope` are neither listed nor requested. Requests are batched by broker,
    with a bounded number in flight; there is none per partition. Raises `CannotTranslate` for a property
    without an equivalent in kafka-python. Every method raises `AdminUnavailable` if no request at all is
    answered. Only one thread at a time may use it.
    """

    def __init__(
        self, properties: Mapping[str, str], timeout_s: float = 10.0, scope: Scope = EVERYTHING
    ) -> None:
        self._scope = scope
        self._connection = AdminConnection(properties, timeout_s)
        self._leaders = Leaders(self._connection, scope)
        self._groups = Groups(self._connection, self._leaders)
        self._owners = OwnerQuestions(self._connection)

    @property
    def cost(self) -> Cost:
        return self._connection.cost

    def close(self) -> None:
        self._connection.close()

    def describe_topology(self, topics: Collection[str] | None = None) -> Topology:
        """Return brokers, and leaders of the partitions of `topics`, of all visible topics when None."""
        return self._connection.run(self._leaders.refresh_leaders, topics).within(self._scope)

    def list_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Offsets | Unseen]:
        """Return log start, LSO and high watermark, never an LSO above the high watermark."""
        question = Question(_offset_requests, self._read_offsets, "DESCRIBE")
        return self._connection.run(self._leaders.ask_leaders, partitions, question)

    def _read_offsets(
        self, answers: Sequence[Any], broker: int
    ) -> Iterator[tuple[TopicPartition, Offsets | PartitionError]]:
        starts, stable, ends = (_offsets(answer) for answer in answers)
        for (topic, number), (code, end, epoch) in ends.items():
            where = TopicPartition(topic, number)
            start_code, start, _ = starts[topic, number]
            stable_code, lso, _ = stable[topic, number]
            code = start_code or stable_code or code
            if code:
                yield where, PartitionError(code)
                continue
            leader_epoch = epoch if epoch >= 0 else self._leaders.leader_epoch(where)
            yield where, Offsets(start, lso, end, broker, leader_epoch)

    def describe_producers(
        self, partitions: Collection[TopicPartition], broker: int | None = None
    ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | Unseen]:
        """Return the active producers from the leaders, or from one replica on `broker` (KIP-664)."""
        question = Question(_producer_requests, _read_producers, "READ", most=500)
        return self._connection.run(self._leaders.ask_leaders, partitions, question, broker)

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the escaped transactional ids that have these producer ids, in any state.

        O(ids) on every broker: request few, rarely. A silent broker raises `AdminUnavailable`: a missing id
        must mean that no broker has it.
        """
        # Any id may have the producer id: with a scope, only our own rows tell.
        return self._connection.run(self._owners.find_ids, producer_ids) if self._scope.has_all_ids else {}

    def list_groups(self) -> GroupListing:
        """Return every consumer group that coordinators list for us."""
        listing = self._connection.run(self._groups.list_groups)
        inside = {name: group for name, group in listing.groups.items() if self._scope.has_group(name)}
        return GroupListing(inside, listing.unseen)

    def committed_offsets(
        self,
        groups: Collection[str],
        *,
        require_stable: bool,
        named: Mapping[str, Collection[TopicPartition]] | None = None,
    ) -> Mapping[str, Commits | Unseen]:
        """Return the groups' committed offsets, many groups per request (OffsetFetch, KIP-709).

        With `require_stable`, a partition with a pending transactional commit is `Unstable`. For a group in
        `named` only those partitions are returned, for other groups every partition with a commit: a
        partition whose first commit is pending is only returned if it is named.
        """

        ask = partial(self._groups.committed_offsets, groups, require_stable=require_stable, named=named)
        return self._connection.run(ask)

    def share_progress(self, groups: Collection[str]) -> Mapping[str, ShareProgresses | Unseen]:
        """Return the progress of share groups (DescribeShareGroupOffsets, KIP-932)."""
        return self._connection.run(self._groups.share_progress, groups)

    def streams_stores(self, groups: Collection[str]) -> Mapping[str, Sequence[StreamsStore] | Unseen]:
        """Return the state stores of Kafka Streams groups (StreamsGroupDescribe, KIP-1071)."""
        return self._connection.run(self._groups.streams_stores, groups)

    def group_setting(self, group: str, name: str) -> str | None:
        """Return a group's own setting (DescribeConfigs, KIP-848); None if it may not be seen."""
        request = partial(_settings_request, _GROUP_RESOURCE, [wire_form(group)], [name])
        return _setting(self._connection.run(self._connection.send_to_any, request), name)

    def batch_headers(
        self, partition: TopicPartition, start: int, *, most_bytes: int, committed: bool = False
    ) -> Batches | Unseen:
        """Return headers of the batches from the batch with offset `start` on.

        Uncommitted ones as well, unless `committed`: then up to the LSO, with the index of aborted ones. A
        first batch larger than `most_bytes` is returned anyway (KIP-74).
        """
        isolation = COMMITTED if committed else UNCOMMITTED
        return self._fetch({partition: start}, most_bytes, isolation)[partition]

    def batch_headers_from(
        self, starts: Mapping[TopicPartition, int], *, most_bytes: int
    ) -> Mapping[TopicPartition, Batches | Unseen]:
        """Return the same for many partitions, one request per leader, with `most_bytes` in its answer.

        A leader fills its answer in the order of the partitions: later partitions get none once it is full.
        """
        return self._fetch(starts, most_bytes, UNCOMMITTED)

    def _fetch(
        self, starts: Mapping[TopicPartition, int], most_bytes: int, isolation: int
    ) -> Mapping[TopicPartition, Batches | Unseen]:
        def requests(topics: Topics) -> Sequence[Any]:
            return [fetch_request(topics, starts, most_bytes, isolation)]

        def read(answers: Sequence[Any], _: int) -> Iterator[tuple[TopicPartition, Batches | PartitionError]]:
            yield from _read_batches(answers[0], starts)

        question = Question(requests, read, "READ")
        return self._connection.run(self._leaders.ask_leaders, starts, question)

    def broker_setting(self, name: str) -> str | None:
        """Return a broker's own setting (DescribeConfigs); None if it may not be seen."""
        return self._connection.run(self._broker_setting, name)

    def topic_settings(
        self, topics: Collection[str], names: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return settings of topics by name, in one request, without topics that may not be described."""
        inside = sorted(topic for topic in topics if self._scope.has_topic(topic))
        if not inside:
            return {}
        request = partial(_settings_request, _TOPIC_RESOURCE, inside, names)
        answer = self._connection.run(self._connection.send_to_any, request)
        return {
            result.resource_name: {setting.name: setting.value for setting in result.configs or ()}
            for result in answer.results
            if not result.error_code
        }

    def log_sizes(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Unseen]:
        """Return the bytes of partitions on their leaders' disks (DescribeLogDirs, KIP-113)."""
        question = Question(_log_dir_requests, _read_log_sizes, "DESCRIBE")
        return self._connection.run(self._leaders.ask_leaders, partitions, question)

    async def _broker_setting(self, name: str) -> str | None:
        brokers = (await self._leaders.refresh_leaders([])).brokers
        # Any broker: the first one that answers.
        for broker in brokers:
            request = _settings_request(_BROKER_RESOURCE, [str(broker)], [name])
            (answer,) = await self._connection.send_each([(request, broker)])
            if not isinstance(answer, errors.KafkaError):
                return _setting(answer, name)
        return None


def _offset_requests(topics: Topics) -> Sequence[Any]:
    return [offset_request(topics, isolation, which) for isolation, which in _IN_ORDER]


def _offsets(answer: Any) -> _Offsets:
    return {
        (topic.name, row.partition_index): (row.error_code, row.offset, row.leader_epoch)
        for topic in answer.topics
        for row in topic.partitions
    }


def _producer_requests(topics: Topics) -> Sequence[Any]:
    topic_of = DescribeProducersRequest.TopicRequest
    rows = [topic_of(name=name, partition_indexes=list(numbers)) for name, numbers in topics.items()]
    return [DescribeProducersRequest(topics=rows)]


def _read_producers(
    answers: Sequence[Any], _: int
) -> Iterator[tuple[TopicPartition, tuple[ProducerState, ...] | PartitionError]]:
    for topic in answers[0].topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                yield where, PartitionError(partition.error_code)
            else:
                yield where, tuple(map(_producer, partition.active_producers))


def _producer(row: Any) -> ProducerState:
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch if row.coordinator_epoch != NONE else None,
        row.current_txn_start_offset if row.current_txn_start_offset != NONE else None,
    )


def _log_dir_requests(topics: Topics) -> Sequence[Any]:
    topic_of = DescribeLogDirsRequest.DescribableLogDirTopic
    rows = [topic_of(topic=name, partitions=list(numbers)) for name, numbers in topics.items()]
    return [DescribeLogDirsRequest(topics=rows)]


def _read_log_sizes(answers: Sequence[Any], _: int) -> Iterator[tuple[TopicPartition, int | PartitionError]]:
    # A refusing broker names no partition.
    (answer,) = answers
    for topic in (topic for folder in answer.results for topic in folder.topics):
        for partition in topic.partitions:
            # A log that moves to another disk is listed twice.
            if not partition.is_future_key:
                yield TopicPartition(topic.name, partition.partition_index), partition.partition_size


def _read_batches(
    answer: Any, starts: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, Batches | PartitionError]]:
    for topic in answer.responses:
        for partition in topic.partitions:
            where = TopicPartition(topic.topic, partition.partition_index)
            if partition.error_code:
                yield where, PartitionError(partition.error_code)
                continue
            data = bytes(partition.records or b"")
            batches = tuple(parse_batches(data))
            following = batches[-1].last + 1 if batches else starts[where]
            ends = partition.high_watermark, data, partition.last_stable_offset
            aborted = ((row.producer_id, row.first_offset) for row in partition.aborted_transactions or ())
            yield where, Batches(batches, following, *ends, tuple(aborted))


def _setting(answer: Any, name: str) -> str | None:
    settings = (setting for result in answer.results for setting in result.configs or ())
    return next((setting.value for setting in settings if setting.name == name), None)


def _settings_request(kind: int, resources: Collection[str], names: Collection[str]) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        resource(resource_type=kind, resource_name=name, configuration_keys=list(names)) for name in resources
    ]
    return DescribeConfigsRequest(resources=asked)
