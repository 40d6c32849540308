"""Poll partitions and the transactions that hold their LSO, as Celery tasks."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from celery import shared_task
from django.conf import settings

from collectors.kafka.partitions import PartitionCollector
from collectors.kafka.record_lens import read_writers
from dashboard.partitions import store as partition_store
from dashboard.runtime import loop
from dashboard.runtime.leases import Lease
from dashboard.tasks.slice import Polled, open_admin, open_reads, poll_repeatedly
from dashboard.tasks.tails import tail_name
from fenceline.decode.record_batches import BatchWriters
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

#: Collectors by cluster, kept from slice to slice, with the token of their last lease.
_watchers: dict[str, tuple[PartitionCollector, int]] = {}


def poll_in_turns(lease: Lease) -> loop.Turns:
    """Poll and save as the holder of `lease`, in turns."""
    config = settings.FENCELINE.clusters[lease.cluster]
    tails = [tail_name(shard) for shard in range(settings.SHARDS)]
    rows = partition_store.PartitionRows(
        lease, tails, vouched=config.sees_all_transactional_ids, scope=config.scope
    )

    def poll() -> loop.Turns:
        watcher = _watcher(lease, rows)
        yield watcher.wait_s()
        _poll(lease, watcher, rows)

    return poll_repeatedly(lease, poll, disconnect)


def _poll(lease: Lease, watcher: PartitionCollector, rows: partition_store.PartitionRows) -> None:
    rows.now_ms = loop.now_ms()
    try:
        partition_store.save_partitions(lease, watcher.poll(rows.now_ms, rows), now_ms=loop.now_ms())
    except BaseException:
        # Discard the collector, because it remembers an observation that was not saved.
        disconnect(lease.cluster)
        raise


def _watcher(lease: Lease, rows: partition_store.PartitionRows) -> PartitionCollector:
    """Return the collector of the previous slice; a new one if another process has polled since."""
    watcher, token = _watchers.get(lease.cluster, (None, 0))
    if watcher is not None and lease.is_unbroken_since(token):
        _watchers[lease.cluster] = watcher, lease.token
        return watcher
    disconnect(lease.cluster)
    config = settings.FENCELINE.clusters[lease.cluster]
    reads = open_reads(config)
    limits = settings.FENCELINE.limits
    watcher = PartitionCollector(
        reads,
        open_admin(config),
        rows,
        every_s=limits.partitions_every_s,
        grace_s=limits.late_grace_s,
    )
    _watchers[lease.cluster] = watcher, lease.token
    return watcher


def disconnect(cluster: str) -> None:
    """Close the connections to a cluster and discard its collector: the next poll starts from the rows."""
    watcher, _ = _watchers.pop(cluster, (None, 0))
    if watcher is not None:
        watcher.close()


@shared_task(name="collectors.look_at_replicas")
def poll_replicas(cluster: str, topic: str, partition: int) -> None:
    """Ask every replica of a partition for its producers, and save each answer."""
    if cluster not in settings.FENCELINE.clusters:
        return
    where = TopicPartition(topic, partition)
    try:
        with closing(open_reads(settings.FENCELINE.clusters[cluster])) as reads:
            answers, leader, ids = _ask_replicas(reads, where)
            writers = _ask_writers(reads, where)
    except (AdminUnavailable, CannotTranslate) as blind:
        answers = dict.fromkeys(partition_store.replica_brokers(cluster, where), str(blind))
        leader, ids, writers = None, {}, None
    partition_store.save_replicas(
        cluster,
        where,
        answers,
        leader=leader,
        ids=ids,
        now_ms=loop.now_ms(),
        writers=writers,
    )


def _ask_writers(reads: ClusterReads, where: TopicPartition) -> BatchWriters | None:
    """Return the writers of the newest batches, None if the leader does not answer."""
    try:
        writers = read_writers(reads, where)
    except AdminUnavailable:
        return None
    return None if isinstance(writers, Unseen) else writers


def _ask_replicas(
    reads: ClusterReads, where: TopicPartition
) -> tuple[Mapping[int, Sequence[ProducerState] | str], int | None, Mapping[int, str]]:
    """Return each replica's answer, the leader, and the producers' known transactional ids."""
    place = reads.describe_topology([where.topic]).partitions.get(where)
    answers: dict[int, Sequence[ProducerState] | str] = {}
    for broker in place.replicas if place else ():
        answer = reads.describe_producers([where], broker)[where]
        answers[broker] = answer.reason if isinstance(answer, Unseen) else answer
    producer_ids = {
        producer.producer_id
        for states in answers.values()
        if not isinstance(states, str)
        for producer in states
    }
    try:
        ids = reads.transactional_ids(producer_ids)
    except AdminUnavailable:
        # Producers are useful without their transactional ids too.
        ids = {}
    return answers, place.leader if place else None, ids


polled = Polled(
    "collectors.partitions",
    partition_store.NAME,
    poll_in_turns,
    lambda _: settings.FENCELINE.limits.partitions_every_s,
)
