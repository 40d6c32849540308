"""Preview the effects of an offered action from our rows, without asking the cluster.

Only planning asks the cluster (`dashboard.actions.planning`); a page that lists effects must not.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from django.conf import settings

from dashboard.actions import blocked_readers, sink_batches
from dashboard.actions.offers import marked_partition
from dashboard.actions.producers import producers_of_rows
from dashboard.models import PartitionRecord, PinRecord
from dashboard.partitions.queries import partition_pins
from dashboard.streaming import queries as streaming_queries
from dashboard.system.owners import split_partition
from dashboard.transactions.queries import find_transaction, partitions_of
from fenceline.decode.typed import record_of
from fenceline.facts import TopicPartition, expand_partitions
from fenceline.grouping import grouped
from fenceline.kafka.partitions import PartitionVerdict, ProducerState
from fenceline.plans.batches import plan_finish
from fenceline.plans.impact import HeldLog
from fenceline.plans.markers import plan_markers
from fenceline.plans.plan import Act, SubjectPlan
from fenceline.plans.producers import plan_fence


def preview_plan(act: Act, cluster: str, subject: str, *, now_ms: int) -> SubjectPlan | None:
    """Return the plan of an offered action on one subject, None if it is refused or no longer known."""
    if act is Act.FINISH_BATCH:
        plan = _finish(cluster, subject, now_ms)
    elif act is Act.FENCE:
        plan = _fence(cluster, subject, now_ms)
    elif act is Act.ABORT_MARKER:
        plan = _marker(cluster, subject)
    else:
        plan = None
    return None if plan is None or plan.is_refused else plan


def _finish(cluster: str, subject: str, now_ms: int) -> SubjectPlan | None:
    ident, _, number = subject.rpartition("@")
    query = streaming_queries.find_query(cluster, ident)
    if query is None or not number.isdecimal():
        return None
    batch = sink_batches.batch_of_rows(query, int(number), now_ms=now_ms)
    where = {partition for written in batch.open_transactions for partition in written.partitions}
    return plan_finish(replace(batch, logs=tuple(_logs(query.cluster_id, where))))


def _fence(cluster: str, subject: str, now_ms: int) -> SubjectPlan | None:
    row = find_transaction(cluster, subject)
    if row is None:
        return None
    (producer,) = producers_of_rows([row], now_ms=now_ms)
    logs = tuple(_logs(row.cluster_id, set(expand_partitions(partitions_of(row)))))
    return plan_fence(replace(producer, logs=logs), now_ms=now_ms, limits=settings.FENCELINE.limits)


def _marker(cluster: str, subject: str) -> SubjectPlan | None:
    name, _, offset = subject.partition("@")
    topic, number = split_partition(name) or ("", 0)
    row = PartitionRecord.objects.filter(cluster__name=cluster, topic=topic, partition=number).first()
    if row is None:
        return None
    place = row.cluster_id, row.topic, row.partition
    pins = partition_pins([place]).get(place, ())
    hanging = [pin for pin in pins if pin.verdict == PartitionVerdict.HANGING]
    marked = marked_partition(row.topic, row.partition, hanging)
    (log,) = _logs(row.cluster_id, {marked.log.where})
    start = int(offset) if offset.isdecimal() else None
    return next(iter(plan_markers(replace(marked, log=log), start)), None)


def _logs(cluster_id: int, wheres: Collection[TopicPartition]) -> Sequence[HeldLog]:
    """Return partitions from our collectors' last polls, with the blocked readers."""
    topics = {where.topic for where in wheres}
    rows = PartitionRecord.objects.filter(cluster=cluster_id, topic__in=topics)
    known = {TopicPartition(row.topic, row.partition): row for row in rows}
    pins = PinRecord.objects.filter(cluster=cluster_id, topic__in=topics).order_by("start_offset")
    opened = grouped(
        (TopicPartition(pin.topic, pin.partition), record_of(ProducerState, pin)) for pin in pins
    )
    lsos = {where: row.lso for where, row in known.items() if where in wheres and row.lso is not None}
    readers = blocked_readers.readers_at(cluster_id, lsos)
    return [
        _log(where, known.get(where), opened[where], readers.get(where, blocked_readers.NOBODY))
        for where in sorted(wheres)
    ]


def _log(
    where: TopicPartition,
    row: PartitionRecord | None,
    opened: Sequence[ProducerState],
    readers: blocked_readers.BlockedReaders,
) -> HeldLog:
    if row is None or row.lso is None:
        return HeldLog(where, opened=tuple(opened), unseen="its offsets have not been polled")
    return HeldLog(where, row.lso, row.high_watermark, tuple(opened), None, readers.groups, readers.queries)
