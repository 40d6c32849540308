"""Groups as the collectors store them, and the output of Kafka's own tool."""

import time
from collections.abc import Collection
from typing import NamedTuple

from collectors.kafka.groups import GroupsCollector
from dashboard.config import ClusterConfig
from dashboard.groups import store as group_store
from dashboard.models import Group, GroupOffset, Transaction
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import tails
from tests.java.tools import KafkaTool
from tests.kafka.driven import read_to_end, take_lease
from transaction_admin.kafka_reads import ClusterReads

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class GroupLine(NamedTuple):
    """One partition of a group: committed offset, log end offset, lag; None where there is none."""

    committed: int | None
    end: int | None
    lag: int | None


#: By group, topic and partition.
GroupLines = dict[tuple[str, str, int], GroupLine]


class CollectedGroups:
    """The collectors of one cluster, polled by hand. Needs an empty database."""

    def __init__(self, properties: dict[str, str], *, log: bool = True) -> None:
        name = properties["bootstrap.servers"].replace(":", "-") + f"-{time.monotonic_ns()}"
        self.cluster = ClusterConfig(name, properties)
        collector_store.sync_clusters([name])
        self.tail = take_lease(name, tails.offsets_name(0))
        self.lease = take_lease(name, group_store.NAME)
        self._state_tail: leases.Lease | None = None
        self._log = log
        #: How far the clock of the polls is ahead of this machine's.
        self.ahead_ms = 0
        self._groups = GroupsCollector(ClusterReads(properties, 25))

    def close(self) -> None:
        """Close the connections."""
        self._groups.close()

    def read(self) -> None:
        """Read the tail up to now."""
        read_to_end(self.tail, tails.tailed_offsets, self.cluster.properties)

    def poll(self, times: int = 1) -> dict[str, Group]:
        """Read the tail, poll groups so many times, save; return the rows by group."""
        for _ in range(times):
            if self._log:
                self.read()
            now_ms = loop.now_ms() + self.ahead_ms
            rows = group_store.GroupRows(self.lease, now_ms)
            found = self._groups.poll(now_ms, rows, every_s=0)
            group_store.save_groups(self.lease, found, rows, now_ms=now_ms)
        return {row.group_id: row for row in Group.objects.filter(cluster__name=self.cluster.name)}

    def transaction(self, name: str) -> Transaction:
        """Read `__transaction_state` up to now; return the row of a transactional id."""
        self.read_transactions()
        return Transaction.objects.get(cluster__name=self.cluster.name, transactional_id=name)

    def read_transactions(self) -> None:
        """Read `__transaction_state` up to now."""
        self._state_tail = self._state_tail or take_lease(self.cluster.name, tails.tail_name(0))
        read_to_end(self._state_tail, tails.tailed, self.cluster.properties)

    def restart(self) -> None:
        """Poll groups with a new collector from now on, as after a restart of its worker."""
        self._groups.close()
        self._groups = GroupsCollector(ClusterReads(self.cluster.properties, 25))

    def offset(self, group: str, topic: str, partition: int) -> GroupOffset:
        """Return a group's row for a partition."""
        return GroupOffset.objects.get(
            group__cluster__name=self.cluster.name, group__group_id=group, topic=topic, partition=partition
        )

    def lines(self) -> GroupLines:
        """Return the stored rows as `kafka-consumer-groups` prints them, which has no share groups."""
        rows = GroupOffset.objects.filter(group__cluster__name=self.cluster.name).exclude(group__kind="Share")
        return {
            (row.group.group_id, row.topic, row.partition): GroupLine(
                row.offset,
                row.high_watermark,
                None if row.offset is None or row.high_watermark is None else row.high_watermark - row.offset,
            )
            for row in rows.select_related("group")
        }


def groups_by_kafka_tool(tool: KafkaTool, ignored: Collection[str] = ()) -> GroupLines:
    """Return what `kafka-consumer-groups --describe --all-groups` prints of each partition with a commit."""
    found: GroupLines = {}
    for text in tool.run(COMMAND, "--describe", "--all-groups").splitlines():
        words = text.rsplit(None, 8)
        if len(words) == 9 and words[2].isdigit() and words[0].strip() not in ignored:
            group, topic, partition, *numbers = words[:6]
            line = GroupLine(*(None if each == "-" else int(each) for each in numbers))
            if line.committed is not None:
                found[group.strip(), topic, int(partition)] = line
    return found
