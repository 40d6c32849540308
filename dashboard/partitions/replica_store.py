"""Save the replicas' reports about a partition's producers, requested by an operator."""

from collections.abc import Mapping, Sequence

from dashboard.models import Cluster, PartitionRecord, ReplicaLook
from dashboard.runtime.write_transactions import cluster_transaction, retry_write
from fenceline.decode.record_batches import BatchWriters
from fenceline.decode.typed import fields_of
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState


@retry_write
def save_replicas(
    cluster: str,
    where: TopicPartition,
    answers: Mapping[int, Sequence[ProducerState] | str],
    *,
    leader: int | None,
    ids: Mapping[int, str],
    now_ms: int,
    writers: BatchWriters | None = None,
) -> None:
    """Save the replicas' reports about a partition's producers, by broker, or the reason for no answer.

    `ids` are the known transactional ids by producer id. `writers` are those of the leader's newest records.
    It notifies the partition's page.
    """
    cluster_id = Cluster.objects.get(name=cluster).pk
    # Two concurrent saves wait for each other here.
    with cluster_transaction(cluster, cluster_id) as write:
        looks = ReplicaLook.objects.filter(
            cluster_id=cluster_id, topic=where.topic, partition=where.partition
        )
        looks.exclude(broker__in=answers).delete()
        answered = {look.broker: look for look in looks.filter(error="")}
        for broker, producers in sorted(answers.items()):
            looks.update_or_create(
                cluster_id=cluster_id,
                topic=where.topic,
                partition=where.partition,
                broker=broker,
                defaults={
                    "leads": broker == leader,
                    "seen_ms": now_ms,
                    "writers": fields_of(writers) if writers is not None and broker == leader else None,
                    **_columns(producers, ids),
                    **_before(answered.get(broker), producers),
                },
            )
        write.notify_after_commit("partitions")


def replica_brokers(cluster: str, where: TopicPartition) -> tuple[int, ...]:
    """Return the brokers of a partition's replicas, as last read; empty if never read."""
    rows = PartitionRecord.objects.filter(cluster__name=cluster, topic=where.topic, partition=where.partition)
    return tuple(rows.values_list("replicas", flat=True).first() or ())


def _columns(answer: Sequence[ProducerState] | str, ids: Mapping[int, str]) -> dict[str, object]:
    if isinstance(answer, str):
        return {"producers": [], "error": answer}
    named = [{**state._asdict(), "transactional_id": ids.get(state.producer_id, "")} for state in answer]
    return {"producers": named, "error": ""}


def _before(known: ReplicaLook | None, answer: Sequence[ProducerState] | str) -> dict[str, object]:
    if known is None or isinstance(answer, str):
        return {}
    return {"producers_before": known.producers, "before_ms": known.seen_ms}
