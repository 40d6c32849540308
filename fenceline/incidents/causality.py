"""Derive edges from causes to effects, from the names in findings and the contents of snapshots.

A node is a finding, or a place where findings meet: `transaction:ID` (why it is open), `held:…` (the things
held by a thing), `batch:…` (why transactions of one prepared batch are open), `partition:…` (why its LSO is
stuck), `blocked:…` (why a group or query is blocked), `aborts:APPLICATION` and `late:APPLICATION`. Places
keep the number of edges near the number of names: n transactions and m groups of one partition make n + m
edges, not n × m.

| edge | comes from |
|---|---|
| query's batch, or its dead driver → transaction | `affected` of `batch_prepared`, `batch_lost`; the ids of the sink's batches in the snapshot |
| Flink job → transactions of its sinks that are open | `affected` of `flink_commit_pending` and `flink_commit_lost`; the prefixes of such jobs in the snapshot: one job left all of them open |
| open transaction ↔ the other transactions of its query's batch | the ids of the sink's batches in the snapshot, and the ledger in an id of our sink: one driver left all of them open |
| query failed → its batch, restart, wait, watermark | the same subject, `SAME_SUBJECT` |
| lost batch → the audit that found its records missing | the query in `affected` of `audit_violated`, and the instant when the batch was decided: both findings count from it |
| application or id that times out → its open transactions | the id's shape (`application_of`), the same id |
| id that is taken over or times out → its application's figures | the id's shape |
| transaction → partition | `affected` of the transaction's finding; partitions of open transactions, and producers at partitions' LSOs, in the snapshot |
| hanging transaction → partition | the subject of `hanging` |
| partition → group, query | `affected` of the reader's finding, and of the partition's |
| transaction → group, query | `affected` of either |
| coordinators that do not answer → transactions they should have ended | the cluster: the finding names no ids |
| broker that does not answer → transactions with partitions that it leads, queries that failed and read from it | a scope `broker:N` in `affected` of `collector_gap` and `coordinator_loading`; the leaders of partitions in the snapshot's `places` |
| a query or a transaction whose finding is over and may return → the things it holds | the snapshot |

A late collector explains no finding: hidden facts are old, not wrong. A group blocked at a partition with two
open transactions has two causes, because both must end. Unstable offsets follow from their named
transactions, not from an LSO.
"""  # noqa: E501 - a table

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fenceline.engines.flink.restore import is_of_prefix
from fenceline.facts import expand_partitions
from fenceline.incidents.findings import FindingKey, OpenFinding, is_same_instance, key_of
from fenceline.kafka.applications import Shape, application_of
from fenceline.snapshot import Snapshot

Node = FindingKey | str
Edge = tuple[Node, Node]

#: On one subject, a finding of the first rule explains findings of the other rules.
SAME_SUBJECT: Mapping[str, Collection[str]] = {
    "two_writers": ("query_failed",),
    "topic_recreated": ("query_failed",),
    "topic_deleted": ("query_failed",),
    "query_failed": (
        "batch_prepared", "batch_slow", "data_loss_risk", "query_blocked", "restart_fails",
        "watermark_stalled",
    ),
    "batch_prepared": ("batch_lost", "restart_fails"),
    "batch_lost": ("restart_fails",),
    "query_blocked": ("batch_slow", "data_loss_risk", "watermark_stalled"),
    "coordinator_overdue": ("open_too_long",),
    "flink_commit_pending": ("flink_commit_lost",),
}  # fmt: skip
#: Findings about an open transaction; those of the second kind are not caused by its producer.
_OPEN = ("open_too_long", "coordinator_overdue", "stuck_in_prepare")
_PRODUCER_ENDS = ("open_too_long", "coordinator_overdue")
_COORDINATOR_ENDS = ("coordinator_overdue", "stuck_in_prepare")
_OF_BATCHES = ("batch_prepared", "batch_lost", "query_failed")
_OF_FLINK = ("flink_commit_pending", "flink_commit_lost")
#: Kinds of subjects that may leave several transactions open at once.
_WRITERS = ("query:", "flink_job:")
_AT_LSO = ("group_stalled", "query_blocked")
_REPEATED = ("fencing_storm", "timeouts_in_a_row")
_IN_PARTS = ("collector_gap", "coordinator_loading")


class ThingLinks(NamedTuple):
    """Dependencies between the subjects of a snapshot, beyond the names in findings."""

    #: Subjects of queries -> transactions of their prepared batches; of Flink jobs -> open transactions of
    #: their sinks; of transactions -> their partitions.
    holds: Mapping[str, Sequence[str]] = {}
    #: The places of subjects, as in `Snapshot.places`.
    places: Mapping[str, frozenset[str]] = {}
    #: Subjects of queries -> partitions that they read.
    reads: Mapping[str, Sequence[str]] = {}
    #: Subjects -> the instance that holds their dependencies, if known (`facts.Finding.instance`).
    instances: Mapping[str, str] = {}

    def places_of(self, things: Iterable[str]) -> Sequence[str]:
        return sorted({place for thing in things for place in self.places.get(thing, ())})


def snapshot_links(snapshot: Snapshot) -> ThingLinks:
    """Return the links of a snapshot: batches to transactions, transactions to partitions."""
    holds: dict[str, list[str]] = {}
    instances = {
        f"transaction:{transaction.transactional_id}": transaction.instance
        for transaction in snapshot.transactions
    }
    for query in snapshot.queries:
        batches = [batch for batch in query.sink_batches if batch.uncommitted_ids]
        if batches:
            holds[query.subject] = [
                f"transaction:{name}" for batch in batches for name in batch.uncommitted_ids
            ]
            instances[query.subject] = batches[0].instance
    for job in snapshot.flink_jobs:
        transactions = (
            transaction
            for transaction in snapshot.transactions
            if is_of_prefix(transaction.transactional_id, job.prefixes)
        )
        holds[job.subject] = [f"transaction:{transaction.transactional_id}" for transaction in transactions]
        instances[job.subject] = job.checkpoint
    for transaction in snapshot.transactions:
        names = [f"partition:{where}" for where in expand_partitions(transaction.partitions)]
        holds[f"transaction:{transaction.transactional_id}"] = names
    for partition in snapshot.partitions:
        for pin in partition.pins:
            if pin.transactional_id:
                holds.setdefault(f"transaction:{pin.transactional_id}", []).append(f"partition:{partition}")
    reads = {query.subject: [f"partition:{where}" for where in query.positions] for query in snapshot.queries}
    return ThingLinks(holds, snapshot.places, reads, instances)


def causal_edges(findings: Collection[OpenFinding], links: ThingLinks) -> Iterator[Edge]:
    """Yield edges from cause to effect among findings of one cluster; some more than once."""
    keys = {key_of(finding) for finding in findings}
    for finding in findings:
        yield from _same_subject(finding, keys)
        if finding.rule in _OPEN:
            yield from _of_transaction(finding, links)
        elif finding.subject.startswith(_WRITERS):
            yield from _of_query(finding, links)
        elif finding.rule in _REPEATED:
            yield from _of_repeated(finding)
        elif finding.rule == "abort_ratio":
            yield f"aborts:{_name(finding.subject)}", key_of(finding)
        elif finding.subject.startswith("partition:"):
            yield from _of_partition(finding)
        elif finding.subject.startswith("group:"):
            yield from _of_reader(finding)
        else:
            yield from _of_observer(finding)
    yield from _of_lost_batches(findings)
    yield from _of_prepared_batches(keys, links)
    yield from _of_held(findings, links)


def returning_edges(causes: Mapping[FindingKey, str], links: ThingLinks) -> Iterator[Edge]:
    """Yield the effects of ended causes, as far as the same instance still holds them.

    `causes` map to their instances. The effects of another transaction or batch follow from that one.
    """
    for cause, instance in causes.items():
        is_there = is_same_instance(links.instances.get(cause.subject, ""), instance)
        if is_there and cause.rule in (*_OF_BATCHES, *_OF_FLINK, *_OPEN):
            for thing in links.holds.get(cause.subject, ()):
                yield cause, thing


def _same_subject(finding: OpenFinding, keys: Collection[FindingKey]) -> Iterator[Edge]:
    for rule in SAME_SUBJECT.get(finding.rule, ()):
        effect = FindingKey(rule, finding.subject)
        if effect in keys:
            yield key_of(finding), effect


def _of_transaction(finding: OpenFinding, links: ThingLinks) -> Iterator[Edge]:
    key = key_of(finding)
    if finding.rule in _PRODUCER_ENDS:
        yield finding.subject, key
        producer = application_of(_name(finding.subject))
        yield f"late:{producer.application}", key
        if producer.kind is Shape.FENCELINE_SINK:
            # One driver writes one batch at a time: the cause of one of its open transactions is the cause of
            # all.
            ledger = producer.member.partition("-")[0]
            yield f"batch:{ledger}", key
            yield key, f"batch:{ledger}"
    if finding.rule in _COORDINATOR_ENDS:
        yield "coordinators", key
    for place in links.places_of({*finding.affected, *links.holds.get(finding.subject, ())}):
        yield place, key
    yield key, f"held:{finding.subject}"
    for thing in finding.affected:
        yield f"held:{finding.subject}", thing if thing.startswith("partition:") else f"blocked:{thing}"


def _of_query(finding: OpenFinding, links: ThingLinks) -> Iterator[Edge]:
    if finding.rule == "query_failed":
        for place in links.places_of(links.reads.get(finding.subject, ())):
            yield place, key_of(finding)
    if finding.rule in (*_OF_BATCHES, *_OF_FLINK):
        for thing in {*finding.affected, *links.holds.get(finding.subject, ())}:
            yield key_of(finding), thing
    elif finding.rule == "query_blocked":
        yield from _of_reader(finding)


def _of_lost_batches(findings: Iterable[OpenFinding]) -> Iterator[Edge]:
    """Yield edges from lost batches to audits of the same loss: both count from the batch's decision."""
    violated = [finding for finding in findings if finding.rule == "audit_violated"]
    for lost in findings if violated else ():
        if lost.rule == "batch_lost" and lost.since_ms is not None:
            for finding in violated:
                if lost.subject in finding.affected and finding.since_ms == lost.since_ms:
                    yield key_of(lost), key_of(finding)


def _of_prepared_batches(keys: Collection[FindingKey], links: ThingLinks) -> Iterator[Edge]:
    """Yield a cycle for each query and Flink job: one cause keeps all of its transactions open."""
    for query, things in links.holds.items():
        for thing in things if query.startswith(_WRITERS) else ():
            for key in (FindingKey(rule, thing) for rule in _PRODUCER_ENDS):
                if key in keys:
                    yield f"batch:{query}", thing
                    yield key, f"batch:{query}"


def _of_repeated(finding: OpenFinding) -> Iterator[Edge]:
    """Yield the effects of repeated takeovers or timeouts of one id, or of a whole application."""
    key, name = key_of(finding), _name(finding.subject)
    is_id = finding.subject.startswith("transaction:")
    application = application_of(name).application if is_id else name
    yield key, f"aborts:{application}"
    if finding.rule == "timeouts_in_a_row":
        yield key, finding.subject if is_id else f"late:{application}"
        if is_id:
            yield f"late:{application}", key


def _of_partition(finding: OpenFinding) -> Iterator[Edge]:
    key = key_of(finding)
    if finding.rule == "hanging":
        yield key, finding.subject
    else:
        yield finding.subject, key
        yield key, f"held:{finding.subject}"
    for thing in finding.affected:
        yield key, f"blocked:{thing}"


def _of_reader(finding: OpenFinding) -> Iterator[Edge]:
    """Yield why a group or query is blocked. An LSO blocks readers; it does not block commits."""
    key, is_at_lso = key_of(finding), finding.rule in _AT_LSO
    if is_at_lso:
        yield f"blocked:{finding.subject}", key
    for thing in finding.affected:
        if is_at_lso or not thing.startswith("partition:"):
            yield f"held:{thing}", key


def _of_observer(finding: OpenFinding) -> Iterator[Edge]:
    """Yield the effects of coordinators or brokers that do not answer."""
    key = key_of(finding)
    if finding.rule == "coordinator_loading":
        yield key, "coordinators"
    if finding.rule in _IN_PARTS:
        for scope in finding.affected:
            if scope.startswith("broker:"):
                yield key, scope


def _of_held(findings: Iterable[OpenFinding], links: ThingLinks) -> Iterator[Edge]:
    """Yield edges to held things: a partition blocks readers, a transaction partitions and readers."""
    things = {finding.subject for finding in findings} | {
        name for finding in findings for name in finding.affected
    }
    things |= {name for thing in things if thing.startswith(_WRITERS) for name in links.holds.get(thing, ())}
    for thing in things:
        yield thing, f"held:{thing}"
        if thing.startswith("transaction:"):
            for partition in links.holds.get(thing, ()):
                yield f"held:{thing}", partition


def _name(subject: str) -> str:
    return subject.partition(":")[2]
