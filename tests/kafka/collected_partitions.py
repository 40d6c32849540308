"""The partitions of a real cluster as the collector stores them, and the output of Kafka's tools."""

import random
import time
from collections.abc import Mapping
from typing import NamedTuple

from collectors.kafka.partitions import PartitionCollector
from dashboard.models import Collector, GapRecord, PartitionRecord, PinRecord
from dashboard.partitions import store as partition_store
from dashboard.runtime import collector_store, loop
from fenceline.kafka.partitions import ObservedPartitions, PartitionVerdict, VerdictReason
from tests.java.tools import KafkaTool
from tests.kafka.driven import take_lease
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: How the tool heads the column of where an open transaction begins.
_START = "CurrentTransactionStartOffset"


class CollectedPartitions:
    """A collector of one cluster on the test's database, run by hand; `vouched`: no id is hidden from it."""

    def __init__(
        self,
        bootstrap: str,
        *,
        properties: Mapping[str, str] | None = None,
        vouched: bool = True,
        tails: tuple[str, ...] = (),
    ) -> None:
        self.properties = {"bootstrap.servers": bootstrap} if properties is None else properties
        self.name = f"collected-{random.getrandbits(40):x}"
        collector_store.sync_clusters([self.name])
        self.lease = take_lease(self.name, partition_store.NAME)
        self.ours = partition_store.PartitionRows(self.lease, tails, vouched=vouched)
        self.start()

    def start(self) -> None:
        """Connect, and begin with the rows of the database."""
        reads = ClusterReads(self.properties, 20)
        admin = TransactionAdmin(self.properties, 20)
        self.watcher = PartitionCollector(reads, admin, self.ours, every_s=0.0, grace_s=15.0)

    def close(self) -> None:
        """Close the connections."""
        self.watcher.close()

    def poll(self, *, full: bool = True, later_ms: int = 0) -> ObservedPartitions:
        """Poll and save; `later_ms`: by a clock that is so far ahead of this machine's."""
        self.watcher._full_at = time.monotonic() + (0 if full else 3_600)
        self.ours.now_ms = loop.now_ms() + later_ms
        seen = self.watcher.poll(self.ours.now_ms, self.ours)
        partition_store.save_partitions(self.lease, seen, now_ms=self.ours.now_ms)
        return seen

    def poll_repeatedly(self, times: int = 4, *, later_ms: int = 0) -> None:
        """Poll as often as it takes: twice until an LSO is blocked, twice more until a cause is."""
        for _ in range(times):
            self.poll(later_ms=later_ms)

    def row(self, topic: str, partition: int = 0) -> PartitionRecord:
        """Return a partition's row."""
        return PartitionRecord.objects.get(cluster__name=self.name, topic=topic, partition=partition)

    def verdict(self, topic: str, partition: int = 0) -> PartitionVerdict:
        """Return a partition's verdict."""
        return PartitionVerdict(self.row(topic, partition).verdict)

    def blockers(self, topic: str, partition: int = 0) -> list[PinRecord]:
        """Return the transactions that are open in a partition, the first in the log first."""
        rows = PinRecord.objects.filter(cluster__name=self.name, topic=topic, partition=partition)
        return list(rows.order_by("start_offset"))

    def verdicts(self, topic: str, partition: int = 0) -> list[tuple[str, PartitionVerdict, VerdictReason]]:
        """Return id, verdict and ground of each of them."""
        rows = self.blockers(topic, partition)
        return [
            (row.transactional_id, PartitionVerdict(row.verdict), VerdictReason(row.ground)) for row in rows
        ]

    def gaps(self) -> dict[str, str]:
        """Return the open gaps: reasons by scope."""
        rows = GapRecord.objects.filter(cluster__name=self.name, source=partition_store.NAME, until_ms=None)
        return dict(rows.values_list("scope", "reason"))

    def collector(self) -> Collector:
        """Return the collector's row."""
        return Collector.objects.get(cluster__name=self.name, name=partition_store.NAME)


COMMAND = "org.apache.kafka.tools.TransactionsCommand"


class HangingTransaction(NamedTuple):
    """A row of `find-hanging`."""

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    minutes: int


def find_hanging(tool: KafkaTool, *, timeout_minutes: int = 0, node_id: int = 1) -> list[HangingTransaction]:
    """Return what `kafka-transactions.sh find-hanging` finds on a broker.

    With a timeout of 0 every open transaction is a candidate, whatever the age of its records: the trick that
    makes the tool examine fresh ones at all (docs/design/kafka.md §1.1).
    """
    rows = _table(
        tool, "find-hanging", "--broker-id", str(node_id), "--max-transaction-timeout", str(timeout_minutes)
    )
    return [
        HangingTransaction(
            row["Topic"],
            int(row["Partition"]),
            int(row["ProducerId"]),
            int(row["StartOffset"]),
            int(row["Duration(min)"]),
        )
        for row in rows
    ]


def describe_producers(tool: KafkaTool, topic: str, partition: int = 0) -> set[tuple[int, int, int | None]]:
    """Return producer id, epoch and start of the open transaction, by `kafka-transactions.sh`."""
    rows = _table(tool, "describe-producers", "--topic", topic, "--partition", str(partition))
    return {
        (
            int(row["ProducerId"]),
            int(row["ProducerEpoch"]),
            None if row[_START] == "None" else int(row[_START]),
        )
        for row in rows
    }


def abort(tool: KafkaTool, topic: str, partition: int, start_offset: int) -> None:
    """Abort a hanging transaction as `kafka-transactions.sh abort` does."""
    where = "--topic", topic, "--partition", str(partition)
    tool.run(COMMAND, "abort", *where, "--start-offset", str(start_offset))


def _table(tool: KafkaTool, *arguments: str) -> list[dict[str, str]]:
    lines = tool.run(COMMAND, *arguments).splitlines()
    header, *rows = [line.split("\t") for line in lines if line.strip()] or [[]]
    names = [name.strip() for name in header]
    return [dict(zip(names, (value.strip() for value in row), strict=True)) for row in rows]
