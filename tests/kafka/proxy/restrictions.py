"""What a proxy takes away, and what it does to a broker's answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.kafka.coordinator import partition_for
from sandbox.ports import HOST

FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR, LIST_GROUPS = 1, 2, 3, 9, 10, 16
API_VERSIONS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 18, 61, 65, 66
#: DescribeCluster and DescribeTopicPartitions name brokers too, and nobody needs them.
_NEVER_KNOWN = {60, 75}
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, LOADING, COORDINATOR_NOT_AVAILABLE = 3, 5, 14, 15
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = 29, 30, 31, 53
#: The brokers that one real broker is shown as: each has its share of leaders and coordinators.
NODES = (1, 2)
#: Of both internal topics, as the sandbox's brokers make them.
LOG_PARTITIONS = 10
#: From here on topics go by ids, which these answers could not be matched by.
_LAST_BY_NAME = {FETCH: 12, OFFSET_FETCH: 9}


@dataclass(frozen=True, slots=True)
class Restrictions:
    """What clients of the proxy do not see; nothing by default."""

    #: Topics that brokers say they do not have.
    absent: frozenset[str] = frozenset()
    #: Topics without DESCRIBE, and with it but without READ.
    undescribed: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    leaderless: frozenset[tuple[str, int]] = frozenset()
    #: Request keys that are answered with an error code, and those that brokers do not know.
    refused: Mapping[int, int] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    #: Whether no right on a transactional id is left: lists then leave ids out without an error.
    ids_denied: bool = False
    #: The same for groups.
    groups_denied: bool = False
    #: Nodes that coordinate nothing for now.
    coordinators_away: frozenset[int] = frozenset()

    def topic_error(self, topic: str) -> int:
        """Return what metadata says of a topic; 0 where it is described."""
        if topic in self.absent:
            return UNKNOWN_TOPIC
        return TOPIC_DENIED if topic in self.undescribed else 0


def node_of(partition: int) -> int:
    """Return the node that is shown as a partition's leader."""
    return NODES[partition % len(NODES)]


def coordinator_of(name: str) -> int:
    """Return the node that is shown as the coordinator of a transactional id or a group."""
    return node_of(partition_for(name.encode(), LOG_PARTITIONS))


@dataclass(slots=True)
class Rewriter:
    """Changes decoded answers as restrictions demand; `ports` are the proxy's by node."""

    ports: Mapping[int, int]
    restrictions: Restrictions = field(default_factory=Restrictions)

    def rewrite(self, key: int, request: Any, answer: Any, node: int) -> None:
        """Change one answer in place; `request` is what it answers, `node` where it was asked."""
        rewriters[key](self, request, answer, node)

    def _metadata(self, request: Any, answer: Any, _: int) -> None:
        broker = type(answer.brokers[0])
        answer.brokers = [broker(node_id=n, host=HOST, port=port, rack="") for n, port in self.ports.items()]
        answer.controller_id = NODES[0]
        if request.topics is None:
            answer.topics = [t for t in answer.topics if not self.restrictions.topic_error(t.name)]
        for topic in answer.topics:
            topic.error_code = self.restrictions.topic_error(topic.name) or topic.error_code
            topic.partitions = [] if topic.error_code else topic.partitions
            for partition in topic.partitions:
                self._lead(topic.name, partition)

    def _lead(self, topic: str, partition: Any) -> None:
        node = node_of(partition.partition_index)
        partition.leader_id, partition.replica_nodes, partition.isr_nodes = node, [node], [node]
        if (topic, partition.partition_index) in self.restrictions.leaderless:
            partition.leader_id, partition.error_code, partition.isr_nodes = -1, LEADER_NOT_AVAILABLE, []

    def _find_coordinator(self, request: Any, answer: Any, _: int) -> None:
        if not answer.coordinators:
            # Up to version 3 there is one, outside any list.
            answer.node_id, answer.host, answer.port = NODES[0], HOST, self.ports[NODES[0]]
        for row in answer.coordinators or ():
            node = coordinator_of(row.key)
            row.node_id, row.host, row.port = node, HOST, self.ports[node]
            denied = self._denied(is_group=request.key_type == 0)
            away = COORDINATOR_NOT_AVAILABLE if node in self.restrictions.coordinators_away else 0
            row.error_code = denied or away

    def _denied(self, *, is_group: bool) -> int:
        if is_group:
            return GROUP_DENIED if self.restrictions.groups_denied else 0
        return ID_DENIED if self.restrictions.ids_denied else 0

    def _list_transactions(self, _: Any, answer: Any, node: int) -> None:
        answer.error_code = self._list_error(LIST_TRANSACTIONS, node)
        hidden = answer.error_code or self.restrictions.ids_denied
        answer.transaction_states = [
            row
            for row in answer.transaction_states
            if not hidden and coordinator_of(row.transactional_id) == node
        ]

    def _list_groups(self, _: Any, answer: Any, node: int) -> None:
        answer.error_code = self._list_error(LIST_GROUPS, node)
        hidden = answer.error_code or self.restrictions.groups_denied
        answer.groups = [
            group for group in answer.groups if not hidden and coordinator_of(group.group_id) == node
        ]

    def _list_error(self, key: int, node: int) -> int:
        away = LOADING if node in self.restrictions.coordinators_away else 0
        return self.restrictions.refused.get(key, 0) or away

    def _describe_transactions(self, _: Any, answer: Any, node: int) -> None:
        for row in answer.transaction_states:
            denied = self._denied(is_group=False)
            row.error_code = denied or self._list_error(DESCRIBE_TRANSACTIONS, node) or row.error_code

    def _offset_fetch(self, _: Any, answer: Any, node: int) -> None:
        for group in answer.groups or ():
            denied = self._denied(is_group=True)
            group.error_code = denied or self._list_error(OFFSET_FETCH, node) or group.error_code
            group.topics = [] if group.error_code else group.topics

    def _partitions(self, key: int, topics: Any, name: str, refuse: Callable[[Any, int], None]) -> None:
        for topic in topics:
            for partition in topic.partitions:
                code = self._partition_error(key, getattr(topic, name), partition.partition_index)
                if code:
                    refuse(partition, code)

    def _partition_error(self, key: int, topic: str, partition: int) -> int:
        denied = topic in self.restrictions.undescribed or (
            topic in self.restrictions.unread and key in (FETCH, DESCRIBE_PRODUCERS)
        )
        leaderless = LEADER_NOT_AVAILABLE if (topic, partition) in self.restrictions.leaderless else 0
        absent = UNKNOWN_TOPIC if topic in self.restrictions.absent else 0
        return (
            absent or (TOPIC_DENIED if denied else 0) or leaderless or self.restrictions.refused.get(key, 0)
        )

    def _fetch(self, _: Any, answer: Any, __: int) -> None:
        self._partitions(FETCH, answer.responses, "topic", _without_records)

    def _list_offsets(self, _: Any, answer: Any, __: int) -> None:
        self._partitions(LIST_OFFSETS, answer.topics, "name", _without_offset)

    def _describe_producers(self, _: Any, answer: Any, __: int) -> None:
        self._partitions(DESCRIBE_PRODUCERS, answer.topics, "name", _without_producers)

    def _api_versions(self, _: Any, answer: Any, __: int) -> None:
        left_out = self.restrictions.unknown | _NEVER_KNOWN
        answer.api_keys = [row for row in answer.api_keys if row.api_key not in left_out]
        for row in answer.api_keys:
            if row.api_key in _LAST_BY_NAME:
                row.max_version = min(row.max_version, _LAST_BY_NAME[row.api_key])


def _without_records(partition: Any, code: int) -> None:
    partition.error_code, partition.high_watermark, partition.last_stable_offset = code, -1, -1
    partition.aborted_transactions, partition.records = [], b""


def _without_offset(partition: Any, code: int) -> None:
    partition.error_code, partition.offset, partition.timestamp = code, -1, -1


def _without_producers(partition: Any, code: int) -> None:
    partition.error_code, partition.active_producers = code, []


#: By request key; other answers pass as they are.
rewriters: Mapping[int, Callable[[Rewriter, Any, Any, int], None]] = {
    FETCH: Rewriter._fetch,
    LIST_OFFSETS: Rewriter._list_offsets,
    METADATA: Rewriter._metadata,
    OFFSET_FETCH: Rewriter._offset_fetch,
    FIND_COORDINATOR: Rewriter._find_coordinator,
    LIST_GROUPS: Rewriter._list_groups,
    API_VERSIONS: Rewriter._api_versions,
    DESCRIBE_PRODUCERS: Rewriter._describe_producers,
    DESCRIBE_TRANSACTIONS: Rewriter._describe_transactions,
    LIST_TRANSACTIONS: Rewriter._list_transactions,
}
