"""Poll partitions with their open transactions, groups, coordinators, capabilities, checkpoints of Spark and
Flink, engines' REST APIs and the audit job's results, and compare coordinators' lists with rows, as Celery
tasks.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

from celery import shared_task
from django.conf import settings

from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from collectors.doctor.sight import Patient, probe_capabilities
from collectors.engines import EnginesCollector
from collectors.flink import FlinkCollector, ObservedFlinkJobs
from collectors.kafka.coordinators import CoordinatorCollector
from collectors.kafka.groups import GroupsCollector
from collectors.kafka.markers import MarkerTail
from collectors.kafka.partitions import PartitionCollector
from collectors.kafka.reconcile import Reconciler
from collectors.kafka.record_lens import read_writers
from dashboard.config import CheckpointRoot, ClusterConfig, EngineEndpoint
from dashboard.engines import store as engine_store
from dashboard.groups import store as group_store
from dashboard.history.audits import read_audits, save_audits
from dashboard.partitions import store as partition_store
from dashboard.runtime import collector_names, leases, loop
from dashboard.runtime.leases import Lease
from dashboard.streaming import checkpoint_store
from dashboard.system import capabilities as capability_store
from dashboard.tasks.slice import (
    ANSWER_S,
    RETRY_S,
    PerCluster,
    Polled,
    Warm,
    entries_of,
    open_admin,
    open_reads,
    poll_repeatedly,
    report_failure,
)
from dashboard.tasks.tails import tail_name
from dashboard.transactions import coordinators, reconcile_store
from fenceline.decode.record_batches import BatchWriters
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import ProducerState
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

#: Milliseconds between two checks of capabilities; a new grant shows within this time.
_CAPABILITIES_EVERY_MS = 60_000
_CAPABILITIES_TICK_S = 5.0
#: Collectors by cluster, kept from slice to slice, with the token of their last lease.
_watchers: dict[str, tuple[PartitionCollector, int]] = {}


def _open_coordinators(config: ClusterConfig) -> CoordinatorCollector:
    rows = coordinators.CoordinatorRows(config.name)
    return CoordinatorCollector(open_reads(config), open_admin(config), rows)


def _open_reconciler(config: ClusterConfig) -> Reconciler:
    def open_markers() -> MarkerTail:
        return MarkerTail(open_reads(config), settings.FENCELINE.limits.markers_mb)

    return Reconciler(open_admin(config), open_markers, config.scope)


group_collectors = Warm(lambda config: GroupsCollector(open_reads(config)))
reconcilers = Warm(_open_reconciler)
_coordinator_collectors = Warm(_open_coordinators)
#: The token of the last lease of coordinators by cluster.
_coordinator_tokens: dict[str, int] = {}


def poll_groups(lease: leases.Lease) -> loop.Turns:
    def poll() -> loop.Turns:
        collector = group_collectors[lease.cluster]
        yield collector.wait_s()
        rows = group_store.GroupRows(lease, loop.now_ms())
        every_s = settings.FENCELINE.limits.groups_every_s
        polled = collector.poll(loop.now_ms(), rows, every_s=every_s)
        group_store.save_groups(lease, polled, rows, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, group_collectors.discard)


def poll_coordinators(lease: leases.Lease) -> loop.Turns:
    """Poll the coordinators of transactional ids and their moves, in turns."""
    if not lease.is_unbroken_since(_coordinator_tokens.get(lease.cluster, 0)):
        # Another process has polled meanwhile, so this collector's memory is outdated.
        _coordinator_collectors.discard(lease.cluster)
    _coordinator_tokens[lease.cluster] = lease.token

    def poll() -> loop.Turns:
        collector = _coordinator_collectors[lease.cluster]
        yield collector.wait_s()
        coordinators.save_coordinators(lease, collector.poll(loop.now_ms()), now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, _coordinator_collectors.discard)


def reconcile(lease: leases.Lease) -> loop.Turns:
    """Compare the coordinators' own lists with the stored rows, in turns."""
    rows = reconcile_store.ReconciledRows(lease, [tail_name(shard) for shard in range(settings.SHARDS)])

    def poll() -> loop.Turns:
        reconciler = reconcilers[lease.cluster]
        yield max(reconciler.wait_s(), settings.FENCELINE.limits.reconcile_every_s)
        polled = reconciler.poll(loop.now_ms(), rows)
        reconcile_store.save_reconciliation(lease, polled, now_ms=loop.now_ms())

    return poll_repeatedly(lease, poll, reconcilers.discard)


def check_capabilities(lease: leases.Lease) -> loop.Turns:
    """Check supported requests, rights and internal topics whenever a check is due, in turns."""
    asked_ms = capability_store.cluster_capabilities(lease.cluster).asked_ms or 0
    while True:
        if loop.now_ms() - asked_ms >= _CAPABILITIES_EVERY_MS:
            look_over_cluster(lease)
            asked_ms = loop.now_ms()
        leases.renew(lease, seen_through_ms=loop.now_ms())
        yield _CAPABILITIES_TICK_S


def look_over_cluster(lease: leases.Lease) -> None:
    """Check the cluster's capabilities once, and save the result."""
    config = settings.FENCELINE.clusters[lease.cluster]
    checks, trouble = None, ""
    try:
        patient = Patient(config.properties, config.sees_all_transactional_ids, ANSWER_S, config.scope)
        checks = probe_capabilities(patient)
    except (AdminUnavailable, CannotTranslate) as blind:
        trouble = str(blind)
    capability_store.save_capabilities(lease, checks, trouble, now_ms=loop.now_ms())


Observed = TypeVar("Observed", ObservedCheckpoints, ObservedFlinkJobs)

#: Seconds from poll to poll of audits, short enough that pages do not show the collector as late.
AUDITS_EVERY_S = 8.0

#: Collectors by cluster, kept from slice to slice with the checkpoints that they have read, or with their
#: pending requests.
checkpoint_collectors: dict[str, CheckpointsCollector] = {}
flink_collectors = PerCluster(lambda cluster: FlinkCollector(_flink_roots(cluster)))
engine_collectors = PerCluster(lambda cluster: EnginesCollector(_engine_apis(cluster)))


def poll_checkpoints(lease: leases.Lease) -> loop.Turns:
    """Poll checkpoints of streaming queries, in turns."""
    while True:
        collector = checkpoint_collectors.get(lease.cluster)
        if collector is None:
            collector = CheckpointsCollector(
                _checkpoint_roots(lease.cluster), checkpoint_store.known_folders(lease)
            )
            checkpoint_collectors[lease.cluster] = collector
        polled = yield from _poll_roots(lease, collector.wait_s, collector.poll)
        checkpoint_store.save_checkpoints(
            lease,
            polled.observations,
            polled.gone,
            gaps=polled.gaps,
            skipped=polled.skipped,
            now_ms=loop.now_ms(),
        )
        collector.mark_saved()


def poll_flink(lease: leases.Lease) -> loop.Turns:
    """Poll checkpoints of Flink jobs, in turns."""
    collector = flink_collectors[lease.cluster]
    while True:
        polled = yield from _poll_roots(lease, collector.wait_s, collector.poll)
        engine_store.save_jobs(
            lease, polled.observations, polled.searched, gaps=polled.gaps, now_ms=loop.now_ms()
        )


def poll_engines(lease: leases.Lease) -> loop.Turns:
    """Poll the REST APIs of engines, in turns."""
    groups = {api.url: api.group for api in _engine_apis(lease.cluster)}
    collector = engine_collectors[lease.cluster]
    while True:
        yield collector.wait_s()
        answers, gaps = collector.poll(loop.now_ms(), every_s=settings.FENCELINE.limits.engines_every_s)
        engine_store.save_engines(lease, answers, groups, gaps=gaps, now_ms=loop.now_ms())


def poll_audits(lease: leases.Lease) -> loop.Turns:
    """Poll the audit job's results, in turns."""
    while True:
        began = time.monotonic()
        polled = read_audits(settings.FENCELINE.audit_url, lease.cluster, patience_s=ANSWER_S)
        if (blind := polled.why_blind) is not None:
            report_failure(lease, f"{blind.why} {blind.remedy}")
        else:
            save_audits(lease, polled, now_ms=loop.now_ms())
        yield max(0.0, AUDITS_EVERY_S - (time.monotonic() - began))


def _poll_roots(
    lease: leases.Lease, wait_s: Callable[[], float], poll: Callable[..., Observed]
) -> Generator[float, None, Observed]:
    """Poll folders of checkpoints, in turns, until a root can be read; save why none can."""
    while True:
        yield wait_s()
        polled = poll(loop.now_ms(), every_s=settings.FENCELINE.limits.checkpoints_every_s)
        if not polled.blind:
            return polled
        report_failure(lease, polled.blind)
        yield RETRY_S


def _checkpoint_roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.checkpoints, config.limits.checkpoints_every_s)


def _flink_roots(cluster: str) -> Sequence[CheckpointRoot]:
    config = settings.FENCELINE
    return entries_of(cluster, config.flink_checkpoints, config.limits.checkpoints_every_s)


def _engine_apis(cluster: str) -> Sequence[EngineEndpoint]:
    config = settings.FENCELINE
    return entries_of(cluster, config.engines, config.limits.engines_every_s)


checkpoints = Polled("collectors.checkpoints", checkpoint_store.NAME, poll_checkpoints, _checkpoint_roots)
audits = Polled(
    "collectors.audits", collector_names.AUDITS, poll_audits, lambda _: settings.FENCELINE.audit_url
)
POLLED = (
    Polled(
        "collectors.reconcile",
        reconcile_store.NAME,
        reconcile,
        lambda _: settings.FENCELINE.limits.reconcile_every_s,
    ),
    Polled("collectors.coordinators", coordinators.NAME, poll_coordinators),
    Polled(
        "collectors.groups",
        group_store.NAME,
        poll_groups,
        lambda _: settings.FENCELINE.limits.groups_every_s,
    ),
    Polled("collectors.capabilities", capability_store.NAME, check_capabilities),
    checkpoints,
    Polled("collectors.flink", collector_names.FLINK, poll_flink, _flink_roots),
    Polled("collectors.engines", engine_store.NAME, poll_engines, _engine_apis),
    audits,
)


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
