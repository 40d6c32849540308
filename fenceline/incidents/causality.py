"""Which finding explains which: edges from causes to effects, by what findings name and snapshots hold.

A node is a finding, or a place that findings meet at: `transaction:ID` (why it is open), `held:…` (what a thing
holds), `batch:…` (why transactions of one prepared batch are open), `partition:…` (why its LSO is stuck),
`blocked:…` (why a group or query waits), `aborts:APPLICATION` and `late:APPLICATION`. Places keep the number of edges near the number of names: n transactions and m groups of
one partition make n + m edges, not n × m.

| edge | comes from |
|---|---|
| query's batch, or its dead driver → transaction | `affected` of `batch_prepared`, `batch_lost`; the ids of the sink's batches in the snapshot |
| Flink job → transactions of its sinks that are open | `affected` of `flink_commit_pending` and `flink_commit_lost`; the prefixes of such jobs in the snapshot: one job left all of them open |
| open transaction ↔ the others of its query's batch | the ids of the sink's batches in the snapshot, and the ledger in an id of our sink: one driver left all of them open |
| query failed → its batch, restart, wait, watermark | the same subject, `SAME_SUBJECT` |
| lost batch → the audit that found records of it missing | the query in `affected` of `audit_violated`, and the instant when the batch was decided: both findings count from it |
| application or id that times out → its open transactions | the id's shape (`application_of`), the same id |
| id that is taken over or times out → its application's figures | the id's shape |
| transaction → partition | `affected` of the transaction's finding; partitions of open transactions, and producers at partitions' LSOs, in the snapshot |
| hanging transaction → partition | the subject of `hanging` |
| partition → group, query | `affected` of the reader's finding, and of the partition's |
| transaction → group, query | `affected` of either |
| coordinators that do not answer → what they should have ended | the cluster: the finding names no ids |
| broker that does not answer → transactions with partitions that it leads, queries that failed and read from it | a scope `broker:N` in `affected` of `collector_gap` and `coordinator_loading`; the leaders of partitions in the snapshot's `places` |
| collector that is critically behind → gaps, coordinators | the cluster |
| a query or a transaction whose finding is over and may return → what it holds | the snapshot |

A late collector explains no finding about Kafka or Spark: what is hidden is old, not wrong. What it hides are
gaps and answers of coordinators. A group that waits at a partition in which two transactions are open has two
causes: both must end. Unstable offsets follow from the transactions that they name, not from an LSO.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fenceline.facts import Severity
from fenceline.flink.restore import is_of_prefix
from fenceline.incidents.findings import FindingKey, OpenFinding, key_of
from fenceline.kafka.applications import Shape, application_of
from fenceline.snapshot import Snapshot

Node = FindingKey | str
Edge = tuple[Node, Node]

#: On one subject, a finding of the first rule explains those of the others.
SAME_SUBJECT: Mapping[str, Collection[str]] = {
    "two_writers": ("query_failed",),
    "topic_recreated": ("query_failed",),
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
#: Findings about an open transaction; those of the second kind are no work of its producer.
_OPEN = ("open_too_long", "coordinator_overdue", "stuck_in_prepare")
_PRODUCER_ENDS = ("open_too_long", "coordinator_overdue")
_COORDINATOR_ENDS = ("coordinator_overdue", "stuck_in_prepare")
_OF_BATCHES = ("batch_prepared", "batch_lost", "query_failed")
_OF_FLINK = ("flink_commit_pending", "flink_commit_lost")
#: Kinds of subjects that leave several transactions open at once.
_WRITERS = ("query:", "flink_job:")
_AT_LSO = ("group_stalled", "query_blocked")
_REPEATED = ("fencing_storm", "timeouts_in_a_row")
_FIGURES = ("abort_ratio", "abort_rate_anomaly", "epoch_burn")
_IN_PARTS = ("collector_gap", "coordinator_loading")


class ThingLinks(NamedTuple):
    """What a snapshot knows of how things hang together, beyond what findings name."""

    #: Subjects of queries -> transactions of their prepared batches; of Flink jobs -> open ones of their
    #: sinks; transactions -> partitions they hold.
    holds: Mapping[str, Sequence[str]] = {}
    #: Where things lie, as `Snapshot.places`.
    places: Mapping[str, frozenset[str]] = {}
    #: Subjects of queries -> partitions that they read.
    reads: Mapping[str, Sequence[str]] = {}

    def places_of(self, things: Iterable[str]) -> Sequence[str]:
        """Return where any of these things lies."""
        return sorted({place for thing in things for place in self.places.get(thing, ())})


def snapshot_links(snapshot: Snapshot) -> ThingLinks:
    """Return the links of a snapshot: batches to transactions, transactions to partitions."""
    holds: dict[str, list[str]] = {}
    for query in snapshot.queries:
        ids = [name for batch in query.sink_batches for name in batch.uncommitted_ids]
        if ids:
            holds[query.subject] = [f"transaction:{name}" for name in ids]
    for job in snapshot.flink_jobs:
        left = (each for each in snapshot.transactions if is_of_prefix(each.transactional_id, job.prefixes))
        holds[job.subject] = [f"transaction:{each.transactional_id}" for each in left]
    for each in snapshot.transactions:
        names = [f"partition:{topic}-{number}" for topic, numbers in each.partitions for number in numbers]
        holds[f"transaction:{each.transactional_id}"] = names
    for partition in snapshot.partitions:
        for pin in partition.pins:
            if pin.transactional_id:
                holds.setdefault(f"transaction:{pin.transactional_id}", []).append(f"partition:{partition}")
    reads = {each.subject: [f"partition:{where}" for where in each.positions] for each in snapshot.queries}
    return ThingLinks(holds, snapshot.places, reads)


def causal_edges(findings: Collection[OpenFinding], links: ThingLinks) -> Iterator[Edge]:
    """Yield edges from cause to effect among some findings of one cluster; some more than once."""
    keys = {key_of(each) for each in findings}
    for each in findings:
        yield from _same_subject(each, keys)
        if each.rule in _OPEN:
            yield from _of_transaction(each, links)
        elif each.subject.startswith(_WRITERS):
            yield from _of_query(each, links)
        elif each.rule in _REPEATED:
            yield from _of_repeated(each)
        elif each.rule in _FIGURES:
            yield f"aborts:{_name(each.subject)}", key_of(each)
        elif each.subject.startswith("partition:"):
            yield from _of_partition(each)
        elif each.subject.startswith("group:"):
            yield from _of_reader(each)
        else:
            yield from _of_observer(each)
    yield from _of_lost_batches(findings)
    yield from _of_prepared_batches(keys, links)
    yield from _of_held(findings, links)


def returning_edges(causes: Iterable[FindingKey], links: ThingLinks) -> Iterator[Edge]:
    """Yield what follows from causes that are over: what their subjects hold now, before they have a finding.

    A driver that dies again leaves its transactions open before its batch is found; a transaction that is
    open again blocks its partitions before it is open for too long.
    """
    for cause in causes:
        if cause.rule in (*_OF_BATCHES, *_OF_FLINK, *_OPEN):
            for thing in links.holds.get(cause.subject, ()):
                yield cause, thing


def _same_subject(each: OpenFinding, keys: Collection[FindingKey]) -> Iterator[Edge]:
    for rule in SAME_SUBJECT.get(each.rule, ()):
        effect = FindingKey(rule, each.subject)
        if effect in keys:
            yield key_of(each), effect


def _of_transaction(each: OpenFinding, links: ThingLinks) -> Iterator[Edge]:
    key = key_of(each)
    if each.rule in _PRODUCER_ENDS:
        yield each.subject, key
        producer = application_of(_name(each.subject))
        yield f"late:{producer.application}", key
        if producer.kind is Shape.FENCELINE_SINK:
            # One driver writes one batch at a time: what keeps one of its transactions open keeps all.
            ledger = producer.member.partition("-")[0]
            yield f"batch:{ledger}", key
            yield key, f"batch:{ledger}"
    if each.rule in _COORDINATOR_ENDS:
        yield "coordinators", key
    for place in links.places_of({*each.affected, *links.holds.get(each.subject, ())}):
        yield place, key
    yield key, f"held:{each.subject}"
    for thing in each.affected:
        yield f"held:{each.subject}", thing if thing.startswith("partition:") else f"blocked:{thing}"


def _of_query(each: OpenFinding, links: ThingLinks) -> Iterator[Edge]:
    if each.rule == "query_failed":
        for place in links.places_of(links.reads.get(each.subject, ())):
            yield place, key_of(each)
    if each.rule in (*_OF_BATCHES, *_OF_FLINK):
        for thing in {*each.affected, *links.holds.get(each.subject, ())}:
            yield key_of(each), thing
    elif each.rule == "query_blocked":
        yield from _of_reader(each)


def _of_lost_batches(findings: Iterable[OpenFinding]) -> Iterator[Edge]:
    """Yield from lost batches to audits that found the same: both count from when the batch was decided."""
    violated = [each for each in findings if each.rule == "audit_violated"]
    for lost in findings if violated else ():
        if lost.rule == "batch_lost" and lost.since_ms is not None:
            for each in violated:
                if lost.subject in each.affected and each.since_ms == lost.since_ms:
                    yield key_of(lost), key_of(each)


def _of_prepared_batches(keys: Collection[FindingKey], links: ThingLinks) -> Iterator[Edge]:
    """Yield a circle for each query and Flink job: what keeps one of its transactions open keeps all."""
    for query, things in links.holds.items():
        for thing in things if query.startswith(_WRITERS) else ():
            for key in (FindingKey(rule, thing) for rule in _PRODUCER_ENDS):
                if key in keys:
                    yield f"batch:{query}", thing
                    yield key, f"batch:{query}"


def _of_repeated(each: OpenFinding) -> Iterator[Edge]:
    """Yield what follows from takeovers or timeouts of one id, or of a whole application."""
    key, name = key_of(each), _name(each.subject)
    is_id = each.subject.startswith("transaction:")
    application = application_of(name).application if is_id else name
    yield key, f"aborts:{application}"
    if each.rule == "timeouts_in_a_row":
        yield key, each.subject if is_id else f"late:{application}"
        if is_id:
            yield f"late:{application}", key


def _of_partition(each: OpenFinding) -> Iterator[Edge]:
    key = key_of(each)
    if each.rule == "hanging":
        yield key, each.subject
    else:
        yield each.subject, key
        yield key, f"held:{each.subject}"
    for thing in each.affected:
        yield key, f"blocked:{thing}"


def _of_reader(each: OpenFinding) -> Iterator[Edge]:
    """Yield why a group or query waits: what its finding names; LSOs hold up readers, not commits."""
    key, is_at_lso = key_of(each), each.rule in _AT_LSO
    if is_at_lso:
        yield f"blocked:{each.subject}", key
    for thing in each.affected:
        if is_at_lso or not thing.startswith("partition:"):
            yield f"held:{thing}", key


def _of_observer(each: OpenFinding) -> Iterator[Edge]:
    """Yield what follows from a collector, or from coordinators, that do not answer."""
    key = key_of(each)
    if each.rule in _IN_PARTS:
        yield "collectors", key
    if each.rule == "collector_behind" and each.severity == Severity.CRITICAL:
        yield key, "collectors"
    if each.rule == "coordinator_loading":
        yield key, "coordinators"
    if each.rule in _IN_PARTS:
        for scope in each.affected:
            if scope.startswith("broker:"):
                yield key, scope


def _of_held(findings: Iterable[OpenFinding], links: ThingLinks) -> Iterator[Edge]:
    """Yield what things hold: a partition its readers, a transaction its partitions and readers."""
    things = {each.subject for each in findings} | {name for each in findings for name in each.affected}
    things |= {name for each in things if each.startswith(_WRITERS) for name in links.holds.get(each, ())}
    for thing in things:
        yield thing, f"held:{thing}"
        if thing.startswith("transaction:"):
            for partition in links.holds.get(thing, ()):
                yield f"held:{thing}", partition


def _name(subject: str) -> str:
    return subject.partition(":")[2]
