"""The leaders of partitions, and requests that only a partition's leader, or a replica, answers.

Requests are batched by broker. A partition that has moved is requested once more at its new leader.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import kafka.errors as errors
from kafka.protocol.metadata import MetadataRequest

from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.grouping import grouped
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import Leader, Topology, Unseen, grant_command
from transaction_admin.connection import AdminConnection, error_name, explain_error

T = TypeVar("T")

#: Partition numbers by topic.
Topics = Mapping[str, Sequence[int]]
_NOWHERE = Leader(None, None, (), ())
_UNKNOWN = errors.UnknownTopicOrPartitionError.errno


class PartitionError(NamedTuple):
    """A broker's error code for a partition."""

    code: int


@dataclass(frozen=True, **SLOTS)
class Question(Generic[T]):
    """A request about the partitions of one broker."""

    #: Makes the requests about some partitions; they are answered in this order.
    requests: Callable[[Topics], Sequence[Any]]
    #: Reads their answers, with the id of the broker.
    read: Callable[[Sequence[Any], int], Iterator[tuple[TopicPartition, T | PartitionError]]]
    #: The required right on the topic, in kafka-acls' words.
    operation: str
    #: Maximum partitions per request.
    most: int = 2_000


class Leaders:
    """The leaders of one cluster by its last metadata."""

    def __init__(self, connection: AdminConnection, scope: Scope = EVERYTHING) -> None:
        """Topics outside `scope` are never requested."""
        self._connection, self._scope = connection, scope
        self._known: dict[str, dict[int, Leader]] = {}
        #: Kafka's error code of an unreadable topic.
        self._refused: dict[str, int] = {}

    async def refresh_leaders(self, topics: Collection[str] | None) -> Topology:
        """Request the leaders of some topics, of all visible ones if None; remember them."""
        if topics is not None:
            topics = [topic for topic in topics if self._scope.has_topic(topic)]
        cluster = await self._connection.send_to_any(lambda: _metadata_request(topics))
        await self._connection.learn_brokers(cluster)
        if topics is None:
            self._known.clear()
            self._refused.clear()
        ids: dict[str, str] = {}
        for topic in cluster.topics:
            self._known[topic.name] = {} if topic.error_code else _leaders(topic)
            if topic.error_code:
                self._refused[topic.name] = topic.error_code
            else:
                self._refused.pop(topic.name, None)
                ids[topic.name] = _written(topic.topic_id)
        return Topology(
            {broker.node_id: f"{broker.host}:{broker.port}" for broker in cluster.brokers},
            {
                TopicPartition(topic.name, number): leader
                for topic in cluster.topics
                for number, leader in self._known[topic.name].items()
            },
            ids,
            tuple(
                Unseen(topic.name, self._refusal(topic.error_code, topic.name, "DESCRIBE"))
                for topic in cluster.topics
                if topic.error_code
            ),
            frozenset(topic.name for topic in cluster.topics if topic.error_code == _UNKNOWN),
        )

    def leader_epoch(self, which: TopicPartition) -> int | None:
        """Return the leader epoch of a partition by the last metadata."""
        return self._known[which.topic][which.partition].leader_epoch

    def leader_of(self, which: TopicPartition) -> int | Unseen:
        """Return the leader of a partition by the last metadata, or the reason why it has no leader."""
        leader = self._known.get(which.topic, {}).get(which.partition, _NOWHERE).leader
        return Unseen(str(which), self._why_none(which)) if leader is None else leader

    def unseen(self, which: TopicPartition, code: int, operation: str, broker: int) -> Unseen:
        """Return the meaning of a broker's error code for a partition; `operation` is the required right."""
        reason = self._refusal(code, which.topic, operation, f"broker {broker} answers ")
        return Unseen(str(which), reason)

    def topic_refusal(self, topic: str, operation: str) -> str:
        """Return why a topic could not be seen; `operation` is the required right."""
        return self._refusal(self._refused[topic], topic, operation)

    def is_forbidden(self, topic: str) -> bool:
        """Whether the last survey of a topic was refused: the topic may exist without being visible to us."""
        return issubclass(errors.for_code(self._refused.get(topic, 0)), errors.AuthorizationError)

    async def ask_leaders(
        self, partitions: Collection[TopicPartition], question: Question[T], broker: int | None = None
    ) -> dict[TopicPartition, T | Unseen]:
        """Ask the leaders, or one `broker`, about partitions; return an answer for each partition."""
        answers: dict[TopicPartition, T | Unseen] = {}
        left: Collection[TopicPartition] = dict.fromkeys(
            partition for partition in partitions if self._scope.has_topic(partition.topic)
        )
        answers |= {
            partition: Unseen(str(partition), "it is outside the configured scope")
            for partition in partitions
            if partition not in left
        }
        unknown = {
            partition.topic
            for partition in left
            if partition.partition not in self._known.get(partition.topic, ())
        }
        for topics in unknown, None:
            if topics is None:
                topics = {partition.topic for partition in left}
            if topics and broker is None:
                await self.refresh_leaders(topics)
            left = await self._ask_once(left, question, broker, answers)
            if not left:
                break
        return {partition: answers[partition] for partition in partitions}

    async def _ask_once(
        self,
        partitions: Collection[TopicPartition],
        question: Question[T],
        broker: int | None,
        answers: dict[TopicPartition, T | Unseen],
    ) -> list[TopicPartition]:
        """Put the answers into `answers`; return the partitions to retry once their leaders are known."""
        by_broker, again = self._by_broker(partitions, broker, answers)
        asked: list[tuple[int, list[TopicPartition], int]] = []
        questions: list[tuple[Any, int]] = []
        for where, portion in _portions(by_broker, question.most):
            requests = question.requests(grouped(portion))
            asked.append((where, portion, len(requests)))
            questions += [(request, where) for request in requests]
        responses = iter(await self._connection.send_each(questions))
        for where, portion, number in asked:
            again += self._take(where, portion, [next(responses) for _ in range(number)], question, answers)
        return again

    def _by_broker(
        self,
        partitions: Collection[TopicPartition],
        broker: int | None,
        answers: dict[TopicPartition, T | Unseen],
    ) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
        if broker is not None:
            return {broker: list(partitions)}, []
        by_leader: dict[int, list[TopicPartition]] = {}
        leaderless: list[TopicPartition] = []
        for partition in partitions:
            leader = self.leader_of(partition)
            if isinstance(leader, Unseen):
                leaderless.append(partition)
                answers[partition] = leader
            else:
                by_leader.setdefault(leader, []).append(partition)
        return by_leader, leaderless

    def _why_none(self, which: TopicPartition) -> str:
        if which.topic in self._refused:
            return self._refusal(self._refused[which.topic], which.topic, "DESCRIBE")
        known = which.partition in self._known.get(which.topic, {})
        return "it has no leader: its replicas are down" if known else "there is no such partition"

    def _take(
        self,
        broker: int,
        partitions: Sequence[TopicPartition],
        responses: Sequence[Any],
        question: Question[T],
        answers: dict[TopicPartition, T | Unseen],
    ) -> list[TopicPartition]:
        failed = next((response for response in responses if isinstance(response, errors.KafkaError)), None)
        if failed is not None:
            reason = f"broker {broker}: {explain_error(failed)}"
            answers.update((partition, Unseen(str(partition), reason, broker)) for partition in partitions)
            return list(partitions)
        again = []
        left = set(partitions)
        for partition, answer in question.read(responses, broker):
            left.discard(partition)
            if not isinstance(answer, PartitionError):
                answers[partition] = answer
                continue
            error = errors.for_code(answer.code)
            answers[partition] = self.unseen(partition, answer.code, question.operation, broker)
            if issubclass(error, errors.RetriableError):
                again.append(partition)
        answers.update(
            (partition, Unseen(str(partition), f"broker {broker} left it out")) for partition in left
        )
        return again

    def _refusal(self, code: int, topic: str, operation: str, who: str = "") -> str:
        error = errors.for_code(code)
        if issubclass(error, errors.AuthorizationError):
            remedy = grant_command(self._connection.principal, operation, f"--topic {topic}")
            return f"no {operation} on this topic; grant it: {remedy}"
        return who + _MEANINGS.get(error, error_name(error))


_MEANINGS = {
    errors.UnknownTopicOrPartitionError: "there is no such topic, or we have no DESCRIBE on it",
    errors.NotLeaderForPartitionError: "it does not lead the partition now",
    errors.OffsetNotAvailableError: "it was elected a moment ago and does not know its high watermark yet",
}


def _metadata_request(topics: Collection[str] | None) -> Any:
    names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def _leaders(topic: Any) -> dict[int, Leader]:
    return {
        partition.partition_index: Leader(
            partition.leader_id if partition.leader_id >= 0 else None,
            partition.leader_epoch if partition.leader_epoch >= 0 else None,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in topic.partitions
    }


def _written(topic_id: Any) -> str:
    """Return a topic's id in librdkafka's spelling; Kafka's own tools write `-` and `_` for `+` and `/`.

    "" if the broker reports none.
    """
    if not topic_id.int:
        return ""
    return b64encode(topic_id.bytes).decode().rstrip("=")


def _portions(
    by_broker: Mapping[int, Sequence[TopicPartition]], most: int
) -> Iterator[tuple[int, list[TopicPartition]]]:
    for broker, partitions in by_broker.items():
        for start in range(0, len(partitions), most):
            yield broker, list(partitions[start : start + most])
