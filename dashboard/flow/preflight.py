"""The setup of one cluster for the pre-flight: our rows, its brokers' settings; and limits of an id."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.db.models import Max, Min

from dashboard.engines.flink_jobs import FlinkDecision, find_job
from dashboard.flow.queries import read_flow
from dashboard.models import Batch, Cluster, FlinkCheckpointRecord, FlinkJob, Query, SinkDecision, Transaction
from dashboard.streaming.batches import BatchOfQuery
from dashboard.transactions.coordinators import broker_setup
from dashboard.transactions.sql import recent_rings
from fenceline.facts import NOT_FROM_LOG, TWO_PHASE_COMMIT_TIMEOUT_MS, Isolation, Transition, TransitionKind
from fenceline.flow.observations import FlowObservations
from fenceline.history.time_range import last_range
from fenceline.kafka.coordinator import EXPIRATION, MAX_TIMEOUT
from fenceline.kafka.fold import transition_ring
from fenceline.preflight.checks import Risk, find_risks
from fenceline.preflight.setup import (
    BrokerSetup,
    ClusterSetup,
    IdSetup,
    JobSetup,
    QuerySetup,
    TopicSetup,
    decided_spans,
    forgotten_ms,
    id_limits,
)
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE, AdminUnavailable
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.properties import CannotTranslate

_ANSWER_S = 5.0
_INTERNAL = (TRANSACTION_STATE, CONSUMER_OFFSETS)
_MIN_IN_SYNC, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_VERIFICATION = "transaction.partition.verification.enable"
#: Maximum applications, ids of each, topics, batches and checkpoints to examine.
_MOST_APPLICATIONS, _MOST_IDS, _MOST_TOPICS, _MOST_BATCHES = 500, 20, 1_000, 100
#: Transitions that end a pause of an id.
_BEGINS = (TransitionKind.BEGIN, TransitionKind.REINIT, TransitionKind.INIT)


@dataclass(frozen=True, slots=True)
class Preflight:
    """The mistakes of one cluster, and the unexamined parts, a sentence each."""

    cluster: str
    risks: Sequence[Risk]
    unseen: Sequence[str]
    #: The number of examined things, by noun.
    examined: Mapping[str, int]


def examine_setup(row: Cluster, *, now_ms: int) -> Preflight:
    """Examine one cluster; read its brokers' settings."""
    setup = read_setup(row, now_ms=now_ms)
    examined = {
        "applications": len(setup.ids),
        "topics": len(setup.topics),
        "Spark queries": len(setup.queries),
        "Flink jobs": len(setup.jobs),
        "groups": len({reader.group for reader in setup.readers}),
    }
    return Preflight(row.name, find_risks(setup), setup.unseen, examined)


def read_setup(row: Cluster, *, now_ms: int) -> ClusterSetup:
    """Return the known settings and habits of a cluster."""
    observed = read_flow(row, last_range("24h", now_ms=now_ms), now_ms=now_ms).observed
    outputs = {write.topic for write in observed.writes} - set(_INTERNAL)
    seen = _ask_brokers(row.name, outputs, observed)
    return ClusterSetup(
        seen.brokers,
        seen.topics,
        list(_id_setups(row.pk)),
        list(map(query_setup, Query.objects.filter(cluster=row).defer("detail").order_by("pk"))),
        list(map(job_setup, FlinkJob.objects.filter(cluster=row).order_by("pk"))),
        [read for read in observed.groups if read.topic in outputs],
        [*seen.unseen, *(gap.reason for gap in observed.gaps)],
    )


def _ask_brokers(cluster: str, outputs: Collection[str], observed: FlowObservations) -> ClusterSetup:
    """Return the brokers' report, and why parts of it are unknown."""
    config = settings.FENCELINE.clusters.get(cluster)
    if config is None:
        return ClusterSetup(unseen=[f"cluster {cluster} is not configured: its brokers were not asked"])
    try:
        with closing(ClusterReads(config.properties, _ANSWER_S, config.scope)) as reads:
            return _asked(reads, sorted(outputs)[:_MOST_TOPICS], observed)
    except (AdminUnavailable, CannotTranslate) as error:
        return ClusterSetup(unseen=[f"the brokers' settings: {error}"])


def _asked(reads: ClusterReads, outputs: Sequence[str], observed: FlowObservations) -> ClusterSetup:
    names = [*outputs, *_INTERNAL]
    topology = reads.describe_topology(names)
    replicas: dict[str, int] = {}
    for where, leader in topology.partitions.items():
        replicas[where.topic] = min(len(leader.replicas), replicas.get(where.topic, len(leader.replicas)))
    configured = reads.topic_settings(list(replicas), [_MIN_IN_SYNC, _UNCLEAN])
    topics = [
        TopicSetup(
            name,
            replicas[name],
            _number(configured.get(name, {}).get(_MIN_IN_SYNC)),
            _flag(configured.get(name, {}).get(_UNCLEAN)),
            plain_records=name in observed.outside or None,
        )
        for name in names
        if name in replicas
    ]
    limits = {name: reads.broker_setting(name) for name in (MAX_TIMEOUT, EXPIRATION, _VERIFICATION)}
    brokers = BrokerSetup(
        _number(limits[MAX_TIMEOUT]), _number(limits[EXPIRATION]), _flag(limits[_VERIFICATION])
    )
    hidden = [name for name, value in limits.items() if value is None]
    unseen = [f"{name} of the brokers: it may not be described" for name in hidden]
    unseen += [f"settings of topic {name}" for name in replicas if name not in configured]
    unseen += [f"topic {part.what}: {part.reason}" for part in topology.unseen]
    return ClusterSetup(brokers, topics, unseen=unseen)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "true"


def _id_setups(cluster_id: int) -> Iterator[IdSetup]:
    rows = Transaction.objects.filter(cluster=cluster_id, timeout_ms__gt=0)
    # The shortest and longest timeouts are those of ids that coordinators have described.
    plain = rows.exclude(timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS)
    limits = plain.values_list("application").annotate(
        low=Min("timeout_ms"), high=Max("timeout_ms"), protocol=Min("client_version")
    )
    two_phase = set(rows.filter(timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS).values_list("application", flat=True))
    known = {name: rest for name, *rest in limits.order_by("application")[:_MOST_APPLICATIONS]}
    for application in sorted({*known, *two_phase})[:_MOST_APPLICATIONS]:
        shortest, longest, protocol = known.get(application, (0, 0, None))
        habits = _habits(cluster_id, application)
        yield IdSetup(application, shortest, longest, application in two_phase, *habits, protocol)


def _habits(cluster_id: int, application: str) -> tuple[int | None, int | None]:
    """Return for some ids the longest transaction that its producer ended, and the longest pause."""
    rows = Transaction.objects.filter(cluster=cluster_id, application=application).exclude(state="Empty")
    keys = {bytes(key): partition for key, partition in rows.values_list("key", "log_partition")[:_MOST_IDS]}
    spans: list[int] = []
    pauses: list[int] = []
    for key, ring in recent_rings(cluster_id, list(keys)).items():
        life = transition_ring.unpack_ring(ring.packed, keys[key])
        spans += decided_spans(life)
        pauses += list(_pauses(life))
    return max(spans, default=None), max(pauses, default=None)


def _pauses(newest_first: Sequence[Transition]) -> Iterator[int]:
    for later, earlier in pairwise(newest_first):
        if later.kind in _BEGINS and earlier.kind is not TransitionKind.EXPIRY:
            yield max(0, later.at_ms - (earlier.completed_ms or earlier.at_ms))


def query_setup(query: Query) -> QuerySetup:
    """Return the settings and habits of a Spark query."""
    durations = Batch.objects.filter(query=query, duration_ms__isnull=False).order_by("-batch_id")
    lasted = durations.values_list("duration_ms", flat=True)[:_MOST_BATCHES]
    newest = SinkDecision.objects.filter(query=query).order_by("-batch_id", "-round").first()
    timeouts = [sent["timeout_ms"] for sent in newest.transactions] if newest else []
    return QuerySetup(
        str(query),
        query.ident,
        query.sink,
        Isolation(query.isolation or "unknown"),
        query.asynchronous,
        max((lasted_ms for lasted_ms in lasted if lasted_ms is not None), default=None),
        min(timeouts, default=None),
        query.checkpoint,
        query.prefix,
    )


def job_setup(job: FlinkJob) -> JobSetup:
    done = FlinkCheckpointRecord.objects.filter(job=job, completed_ms__isnull=False)
    newest = done.order_by("-completed_ms").values_list("completed_ms", flat=True)[:_MOST_BATCHES]
    instants = sorted(instant for instant in newest if instant is not None)
    interval = max((later - earlier for earlier, later in pairwise(instants)), default=None)
    return JobSetup(job.ident, job.prefixes, interval, _job_timeout(job.cluster_id, job.prefixes))


def _job_timeout(cluster_id: int, prefixes: Sequence[str]) -> int | None:
    """Return the shortest timeout of the ids with a job's prefix."""
    timeouts = [
        Transaction.objects.filter(cluster=cluster_id, transactional_id__startswith=prefix, timeout_ms__gt=0)
        .exclude(timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS)
        .aggregate(low=Min("timeout_ms"))["low"]
        for prefix in prefixes
        if prefix
    ]
    return min((timeout_ms for timeout_ms in timeouts if timeout_ms is not None), default=None)


def id_bounds(
    row: Transaction, recent: Sequence[Transition], written: BatchOfQuery | None, flink: FlinkDecision | None
) -> Mapping[str, Any]:
    """Return the limits of an id in ms, with those of its query's sink or Flink job; unknown ones are None.

    `expiration_ms` is the idle time after which its coordinator forgets it, `forgotten_ms` that instant, None
    while it is open.
    """
    brokers = broker_setup(row.cluster_id)
    job = find_job(row.cluster.name, flink.hold.job) if flink else None
    limits = id_limits(
        row.timeout_ms,
        brokers,
        decided_spans(recent),
        query_setup(written.query) if written else None,
        job_setup(job) if job else None,
    )
    if row.log_offset == NOT_FROM_LOG:
        # A list does not report the last use of an id.
        return {"limits": limits, "expiration_ms": None, "forgotten_ms": None}
    forgotten = forgotten_ms(row.updated_ms, brokers, is_open=row.is_open)
    return {"limits": limits, "expiration_ms": brokers.id_expiration_ms, "forgotten_ms": forgotten}
