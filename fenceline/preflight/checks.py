"""The checks of the pre-flight: each finds one kind of mistake in a setup, with its risk and its remedy.

| check | mistake |
|---|---|
| timeout_refused | a transaction timeout above the brokers' `transaction.max.timeout.ms` |
| timeout_too_short | a timeout nearly used up by a transaction, a batch or checkpoint intervals |
| timeout_too_long | an abandoned transaction would block its readers for more than an hour |
| never_times_out | a two-phase commit: only the application's coordinator ends it |
| shared_prefix | two writers with overlapping prefixes of transactional ids |
| id_expires | a pause between transactions as long as `transactional.id.expiration.ms` |
| one_replica, one_in_sync, all_in_sync | replication that loses, or stops, committed writes |
| unclean_election | a replica without the newest records may become leader |
| verification_off | brokers accept records of transactions that were never begun |
| old_protocol | late records of an older transaction may join a newer one |
| plain_records | records outside of transactions in a topic of transactions |
| reads_uncommitted | a reader that gets records of aborted transactions |
| sink_repeats, asynchronous_progress | a Spark query that repeats a batch after a failure |
| local_checkpoint | a checkpoint that is lost with its machine |
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple
from urllib.parse import urlsplit

from fenceline.facts import Isolation, Severity
from fenceline.formatting import format_duration
from fenceline.preflight.setup import CHECKPOINTS, NEARLY, ClusterSetup, TopicSetup

_HOUR_MS = 3_600_000
_TEMPORARY = ("/tmp/", "/var/tmp/")  # noqa: S108 - looked for, not written to
_KIP_98, _KIP_890 = "KIP-98", "KIP-890"
_REPLICATION = "Kafka documentation, min.insync.replicas and acks"


class Risk(NamedTuple):
    """One mistake: the fact, its possible consequence, the remedy, and its documentation."""

    check: str
    severity: Severity
    #: `kind:name`, as in findings; "cluster" for the brokers as a whole.
    subject: str
    fact: str
    risk: str
    remedy: str
    source: str


Check = Callable[[ClusterSetup], Iterator[Risk]]


def find_risks(setup: ClusterSetup) -> Sequence[Risk]:
    """Return the mistakes in a setup, worst first. An unknown setting is no mistake."""
    found = [risk for check in CHECKS for risk in check(setup)]
    return sorted(found, key=lambda risk: (list(Severity).index(risk.severity), risk.check, risk.subject))


def _timeouts_refused(setup: ClusterSetup) -> Iterator[Risk]:
    most = setup.brokers.max_timeout_ms
    for ids in setup.ids:
        if most is not None and not ids.is_two_phase and ids.longest_timeout_ms > most:
            yield Risk(
                "timeout_refused",
                Severity.CRITICAL,
                f"application:{ids.application}",
                f"its transaction timeout is {format_duration(ids.longest_timeout_ms)}, and the brokers' "
                f"transaction.max.timeout.ms {format_duration(most)}",
                "its producers are refused at their next start (INVALID_TRANSACTION_TIMEOUT)",
                "lower transaction.timeout.ms of the producers, or raise transaction.max.timeout.ms",
                _KIP_98,
            )


def _timeouts_too_short(setup: ClusterSetup) -> Iterator[Risk]:
    for ids in setup.ids:
        yield from _too_short(
            f"application:{ids.application}",
            ids.longest_open_ms,
            None if ids.is_two_phase else ids.shortest_timeout_ms,
            "its longest transaction lasted",
            _KIP_98,
        )
    for query in setup.queries:
        lasted = "its longest batch lasted"
        yield from _too_short(
            f"query:{query.ident or query.name}", query.longest_batch_ms, query.timeout_ms, lasted, _KIP_98
        )
    for job in setup.jobs:
        # A transaction lives from one checkpoint to the next, including a restart between them.
        needed = None if job.longest_interval_ms is None else job.longest_interval_ms * CHECKPOINTS
        source = "Flink documentation, Kafka sink, fault tolerance"
        lasts = "two of its checkpoint intervals take"
        yield from _too_short(f"flink_job:{job.name}", needed, job.timeout_ms, lasts, source)


def _too_short(
    subject: str, lasted_ms: int | None, timeout_ms: int | None, words: str, source: str
) -> Iterator[Risk]:
    if lasted_ms is None or timeout_ms is None or lasted_ms < timeout_ms * NEARLY:
        return
    yield Risk(
        "timeout_too_short",
        Severity.CRITICAL if lasted_ms >= timeout_ms else Severity.WARNING,
        subject,
        f"{words} {format_duration(lasted_ms)}, and its transaction timeout is {format_duration(timeout_ms)}",
        "the coordinator aborts a slower one in the middle, and its records are lost or repeated",
        "raise transaction.timeout.ms of the producers, within the brokers' transaction.max.timeout.ms",
        source,
    )


def _timeouts_too_long(setup: ClusterSetup) -> Iterator[Risk]:
    for ids in setup.ids:
        if not ids.is_two_phase and ids.longest_timeout_ms > _HOUR_MS:
            yield Risk(
                "timeout_too_long",
                Severity.WARNING,
                f"application:{ids.application}",
                f"its transaction timeout is {format_duration(ids.longest_timeout_ms)}",
                "a producer that dies blocks every read_committed reader of its partitions for as long",
                "lower transaction.timeout.ms to what a restart of the application takes",
                _KIP_98,
            )


def _never_times_out(setup: ClusterSetup) -> Iterator[Risk]:
    for ids in setup.ids:
        if ids.is_two_phase:
            yield Risk(
                "never_times_out",
                Severity.WARNING,
                f"application:{ids.application}",
                "it takes part in a two-phase commit: its transactions have no timeout",
                "one that its application forgets blocks the readers of its partitions for ever",
                "watch its open transactions; end a forgotten one from here, or with kafka-transactions.sh",
                "KIP-939",
            )


def _shared_prefixes(setup: ClusterSetup) -> Iterator[Risk]:
    named = [(f"query:{query.ident or query.name}", query.prefix) for query in setup.queries if query.prefix]
    named += [(f"flink_job:{job.name}", prefix) for job in setup.jobs for prefix in job.prefixes if prefix]
    for (writer, first), (other, second) in combinations(named, 2):
        if writer != other and (first.startswith(second) or second.startswith(first)):
            yield Risk(
                "shared_prefix",
                Severity.CRITICAL,
                writer,
                f"its transactional ids begin with “{first}”, those of {other} with “{second}”",
                "each start of one may fence, or abort, the transactions of the other",
                "give each a prefix that no other one begins with",
                "Flink documentation, Kafka sink, transactionalIdPrefix; " + _KIP_98,
            )


def _ids_expire(setup: ClusterSetup) -> Iterator[Risk]:
    limit = setup.brokers.id_expiration_ms
    for ids in setup.ids:
        pause = ids.longest_pause_ms
        if limit is not None and pause is not None and pause >= limit * NEARLY:
            yield Risk(
                "id_expires",
                Severity.WARNING,
                f"application:{ids.application}",
                f"its producers pause for up to {format_duration(pause)}, and an id expires after "
                f"{format_duration(limit)} (transactional.id.expiration.ms)",
                "a producer that goes on after such a pause fails with INVALID_PRODUCER_ID_MAPPING",
                "raise transactional.id.expiration.ms, or begin a transaction more often",
                _KIP_98,
            )


def _replication(setup: ClusterSetup) -> Iterator[Risk]:
    for topic in setup.topics:
        if topic.replicas is None:
            continue
        if topic.replicas < 2:
            risk = "what was committed is lost with one broker, and its markers cannot be written meanwhile"
            remedy = "give it three replicas (kafka-reassign-partitions.sh)"
            yield _of_topic("one_replica", Severity.CRITICAL, topic, "it has one replica", risk, remedy)
        elif topic.min_in_sync is not None and topic.min_in_sync < 2:
            fact = f"it has {topic.replicas} replicas, and min.insync.replicas is {topic.min_in_sync}"
            risk = "a leader alone may acknowledge a write, which is lost where that leader dies"
            remedy = "set min.insync.replicas=2"
            yield _of_topic("one_in_sync", Severity.WARNING, topic, fact, risk, remedy)
        elif topic.min_in_sync is not None and topic.min_in_sync >= topic.replicas:
            fact = f"min.insync.replicas is {topic.min_in_sync}, all of its {topic.replicas} replicas"
            risk = "writes and markers stop whenever one broker is away"
            remedy = "set min.insync.replicas to one less than the number of replicas"
            yield _of_topic("all_in_sync", Severity.WARNING, topic, fact, risk, remedy)


def _unclean_elections(setup: ClusterSetup) -> Iterator[Risk]:
    for topic in setup.topics:
        if topic.unclean_election:
            yield _of_topic(
                "unclean_election",
                Severity.CRITICAL,
                topic,
                "unclean.leader.election.enable is true",
                "a replica that lacks committed records, or markers, may become leader: they are gone then",
                "set unclean.leader.election.enable=false",
            )


def _of_topic(check: str, severity: Severity, topic: TopicSetup, fact: str, risk: str, remedy: str) -> Risk:
    return Risk(check, severity, f"topic:{topic.name}", fact, risk, remedy, _REPLICATION)


def _verification(setup: ClusterSetup) -> Iterator[Risk]:
    if setup.brokers.verifies_partitions is False:
        yield Risk(
            "verification_off",
            Severity.CRITICAL,
            "cluster",
            "transaction.partition.verification.enable is false",
            "a late record can begin a transaction that no coordinator knows, and that hangs for ever",
            "set transaction.partition.verification.enable=true",
            _KIP_890,
        )


def _old_protocols(setup: ClusterSetup) -> Iterator[Risk]:
    for ids in setup.ids:
        if ids.protocol is not None and ids.protocol < 2:
            yield Risk(
                "old_protocol",
                Severity.INFO,
                f"application:{ids.application}",
                f"its clients use version {ids.protocol} of the transaction protocol",
                "a late record of an aborted transaction may become part of the next one of its id",
                "upgrade its clients to Kafka 4, or to a librdkafka that speaks transaction version 2",
                _KIP_890,
            )


def _plain_records(setup: ClusterSetup) -> Iterator[Risk]:
    for topic in setup.topics:
        if topic.plain_records:
            yield Risk(
                "plain_records",
                Severity.WARNING,
                f"topic:{topic.name}",
                "transactions write to it, and so do producers outside of any transaction",
                "what those send again is there twice: the topic as a whole is not exactly once",
                "find these producers on the partitions' pages, and give them a transactional id",
                _KIP_98,
            )


def _uncommitted_readers(setup: ClusterSetup) -> Iterator[Risk]:
    readers = [(f"group:{reader.group}", reader.isolation, reader.topic) for reader in setup.readers]
    readers += [(f"query:{query.ident or query.name}", query.isolation, "Kafka") for query in setup.queries]
    for subject, isolation, read in readers:
        if isolation is Isolation.READ_UNCOMMITTED:
            yield Risk(
                "reads_uncommitted",
                Severity.CRITICAL,
                subject,
                f"it reads {read} with isolation.level=read_uncommitted",
                "it processes records of aborted transactions, which are written again later",
                "set isolation.level=read_committed (Spark: kafka.isolation.level)",
                _KIP_98,
            )


def _repeating_sinks(setup: ClusterSetup) -> Iterator[Risk]:
    for query in setup.queries:
        if query.sink == "kafka":
            yield Risk(
                "sink_repeats",
                Severity.WARNING,
                f"query:{query.ident or query.name}",
                "it writes by Spark's own Kafka sink, which uses no transactions",
                "a batch that runs again after a failure is written again",
                "write by the exactly-once sink (docs/sink.md), or remove duplicates by key downstream",
                "Spark documentation, Kafka integration, at-least-once",
            )
        if query.asynchronous:
            yield Risk(
                "asynchronous_progress",
                Severity.WARNING,
                f"query:{query.ident or query.name}",
                "it tracks its progress asynchronously",
                "after a failure it repeats batches that were done",
                "set asyncProgressTrackingEnabled=false",
                "Spark documentation, asynchronous progress tracking",
            )


def _local_checkpoints(setup: ClusterSetup) -> Iterator[Risk]:
    for query in setup.queries:
        parts = urlsplit(query.checkpoint)
        if parts.scheme in ("", "file") and parts.path.startswith(_TEMPORARY):
            yield Risk(
                "local_checkpoint",
                Severity.CRITICAL,
                f"query:{query.ident or query.name}",
                f"its checkpoint is {query.checkpoint}",
                "a temporary folder is emptied, and lost with its machine: the query begins anew",
                "set checkpointLocation to a store that outlives the driver, before its first batch",
                "Spark documentation, recovering from failures with checkpointing",
            )


#: All checks, in no particular order.
CHECKS: Sequence[Check] = (
    _timeouts_refused,
    _timeouts_too_short,
    _timeouts_too_long,
    _never_times_out,
    _shared_prefixes,
    _ids_expire,
    _replication,
    _unclean_elections,
    _verification,
    _old_protocols,
    _plain_records,
    _uncommitted_readers,
    _repeating_sinks,
    _local_checkpoints,
)
