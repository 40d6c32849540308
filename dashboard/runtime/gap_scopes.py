"""Find the places of subjects: an unreadable broker or internal partition hides only its own subjects."""

from collections.abc import Iterable, Mapping, Sequence

from dashboard.models import Collector, FlinkJob, Group, PartitionRecord, Position, Query
from dashboard.runtime.collector_names import TAIL
from dashboard.runtime.collector_store import TRANSACTION_STATE
from fenceline.decode import text
from fenceline.findings.visibility import kind_of
from fenceline.grouping import grouped
from fenceline.kafka.coordinator import partition_for

OFFSETS_TOPIC = "__consumer_offsets"


class Places:
    """The places of subjects: brokers, partitions of internal topics, shards."""

    def __init__(self, cluster_id: int, rows: Sequence[Collector]) -> None:
        self._cluster_id = cluster_id
        self._shards = len([row for row in rows if row.name.startswith(TAIL)])

    def places_of(self, things: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Return the places of the things with a known place."""
        kinds = grouped((kind_of(thing), thing.partition(":")[2]) for thing in things)
        return {
            **self._of_transactions(kinds["transaction"]),
            **self._of_partitions(set(kinds["partition"])),
            **self._of_groups(kinds["group"]),
            **self._of_queries(kinds["query"]),
            **self._of_flink_jobs(kinds["flink_job"]),
        }

    def _of_transactions(self, names: Iterable[str]) -> Mapping[str, frozenset[str]]:
        rows = Position.objects.filter(cluster=self._cluster_id, topic=TRANSACTION_STATE)
        partitions = rows.count()
        if not partitions or self._shards < 2:
            return {f"transaction:{name}": frozenset() for name in names}
        numbers = {name: partition_for(text.unescape_text(name), partitions) for name in names}
        return {
            f"transaction:{name}": frozenset({f"shard:{number % self._shards}"})
            for name, number in numbers.items()
        }

    def _of_partitions(self, names: set[str]) -> Mapping[str, frozenset[str]]:
        if not names:
            return {}
        topics = {name.rpartition("-")[0] for name in names}
        rows = PartitionRecord.objects.filter(cluster=self._cluster_id, topic__in=topics)
        places = rows.values_list("topic", "partition", "leader", "replicas")
        return {
            f"partition:{topic}-{number}": _places_of_partition(topic, leader, replicas)
            for topic, number, leader, replicas in places
            if f"{topic}-{number}" in names
        }

    def _of_groups(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        rows = Group.objects.filter(cluster=self._cluster_id, group_id__in=names)
        return {
            f"group:{name}": frozenset({f"broker:{coordinator}", f"{OFFSETS_TOPIC}-{log}"})
            for name, coordinator, log in rows.values_list("group_id", "coordinator", "log_partition")
            if coordinator is not None and log is not None
        }

    def _of_queries(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the folder of each query: an incompletely searched root does not hide known folders."""
        rows = Query.objects.filter(cluster=self._cluster_id, ident__in=names).exclude(checkpoint="")
        return {
            f"query:{name}": frozenset({f"checkpoint:{path}"})
            for name, path in rows.values_list("ident", "checkpoint")
        }

    def _of_flink_jobs(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        rows = FlinkJob.objects.filter(cluster=self._cluster_id, ident__in=names)
        return {
            f"flink_job:{name}": frozenset({f"checkpoint:{path}"})
            for name, path in rows.values_list("ident", "path")
        }


def _places_of_partition(topic: str, leader: int | None, replicas: Sequence[int]) -> frozenset[str]:
    """Return a partition's topic and leader; without a leader, the brokers of its replicas."""
    brokers = replicas if leader is None else [leader]
    return frozenset({f"topic:{topic}", *(f"broker:{broker}" for broker in brokers)})
