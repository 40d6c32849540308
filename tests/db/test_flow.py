"""Proves what tails keep of the topics that applications write, once however their records are cut into
saves; and that a sample of the generated topologies comes out of the stores as its true edges."""

import random
from itertools import pairwise

import pytest

from dashboard.flow import queries as flow_queries
from dashboard.groups import store as group_store
from dashboard.models import Cluster, Query, TopicTally
from dashboard.runtime import retention
from dashboard.runtime.leases import Lease
from dashboard.transactions import store
from dashboard.transactions.topic_tallies import LONG_S, SHORT_S
from fenceline.facts import TopicPartition, TopicPartitions, TransactionRecord, TransactionState
from fenceline.history.time_range import last_range
from fenceline.kafka.fold.counting import MOST_TOPICS, OFFSETS_TOPIC
from fenceline.kafka.group_observation import ObservedGroups, SeenGroup
from fenceline.kafka.groups import Committed
from fenceline.limits import Retention
from fenceline.series.histograms import bucket_of, unpack_histogram
from tests.db import factories
from tests.db.conftest import NOW_MS, Take
from tests.factories import tail_batch
from tests.unit.flow_topologies import Topology, topology

pytestmark = pytest.mark.sql

_STATES = TransactionState
#: Begin, decision, last marker: after so many ms.
_STEPS = ((_STATES.ONGOING, 0), (_STATES.PREPARE_COMMIT, 30), (_STATES.COMPLETE_COMMIT, 50))
_ABORT = ((_STATES.ONGOING, 0), (_STATES.PREPARE_ABORT, 30), (_STATES.COMPLETE_ABORT, 50))


def life(
    name: str, *topics: str, steps: tuple[tuple[TransactionState, int], ...] = _STEPS, begun_ms: int = NOW_MS
) -> list[TransactionRecord]:
    """Return the records of one transaction."""
    named = tuple(TopicPartitions(topic, (0, 1)) for topic in topics)
    return [
        TransactionRecord(
            name, state, 7, 0, 60_000, named if "Complete" not in state else (), begun_ms + ms, begun_ms
        )
        for state, ms in steps
    ]


def save(lease: Lease, records: list[TransactionRecord], *cuts: int) -> None:
    """Save records, as so many saves as they are cut into."""
    ends = [0, *cuts, len(records)]
    for start, end in pairwise(ends):
        seen = tail_batch(3, *records[start:end], previous=start or None, end=end, seen_through_ms=NOW_MS)
        store.save_batch(lease, seen, topic_id="topic-1", rate=1.0, now_ms=NOW_MS)


def counted(span_s: int = SHORT_S) -> dict[tuple[str, str, int], tuple[int, int, int]]:
    """Return commits, aborts and how many times are known, by application, topic and partition."""
    found = {}
    for row in TopicTally.objects.filter(span_s=span_s):
        known = sum(unpack_histogram(row.unreadable_times).values())
        found[row.application, row.topic, row.partition] = (row.commits, row.aborts, known)
    return found


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (3,), (4,), (5,), (1, 2, 3, 4, 5)])
def test_transactions_are_counted_once_however_their_records_are_cut_into_saves(
    tail: Lease, cuts: tuple[int, ...]
) -> None:
    records = [*life("app-1", "orders", "audit"), *life("app-1", "orders", begun_ms=NOW_MS + 100)]
    save(tail, records, *cuts)
    for span_s in (SHORT_S, LONG_S):
        assert counted(span_s) == {("app", "orders", -1): (2, 0, 2), ("app", "audit", -1): (1, 0, 1)}
    row = TopicTally.objects.get(topic="orders", span_s=SHORT_S)
    # From the begin to the last marker.
    assert list(unpack_histogram(row.unreadable_times)) == [bucket_of(50)]
    assert row.last_ms == NOW_MS + 150


@pytest.mark.parametrize("cuts", [(), (1,), (2,)])
def test_aborts_are_counted_without_a_time(tail: Lease, cuts: tuple[int, ...]) -> None:
    save(tail, life("app-1", "orders", steps=_ABORT), *cuts)
    assert counted() == {("app", "orders", -1): (0, 1, 0)}


def test_an_open_transaction_names_its_topics_before_it_ends(tail: Lease) -> None:
    save(tail, life("app-1", "orders")[:1])
    assert counted() == {("app", "orders", -1): (0, 0, 0)}


def test_offsets_are_kept_by_the_partition_that_says_whose_they_are(tail: Lease) -> None:
    save(tail, life("app-1", "orders", OFFSETS_TOPIC))
    assert counted() == {
        ("app", "orders", -1): (1, 0, 1),
        ("app", OFFSETS_TOPIC, 0): (1, 0, 1),
        ("app", OFFSETS_TOPIC, 1): (1, 0, 1),
    }


def test_of_an_application_with_thousands_of_topics_the_rest_is_one_row(tail: Lease) -> None:
    topics = [f"topic-{number:04}" for number in range(MOST_TOPICS - 10)]
    more = [f"more-{number:02}" for number in range(30)]
    records = [*life("app-1", *topics), *life("app-1", *more, begun_ms=NOW_MS + 100)]
    save(tail, records, 3)
    rows = counted()
    assert len(rows) == MOST_TOPICS + 1
    assert rows["app", "", -1][0] == 20
    (gap,) = read(tail).gaps
    assert gap.subject == "application:app"


def test_old_spans_are_deleted_by_their_own_retention(take: Take) -> None:
    day_ms = 86_400_000
    lease = take()
    records = [*life("app-1", "orders", begun_ms=NOW_MS - 40 * day_ms)]
    records += life("app-1", "orders", begun_ms=NOW_MS - 10 * day_ms)
    save(lease, [*records, *life("app-1", "orders")])
    pruner = take(retention.NAME)
    factories.prune_all(pruner, Retention(), NOW_MS)
    assert TopicTally.objects.filter(span_s=SHORT_S).count() == 1
    assert TopicTally.objects.filter(span_s=LONG_S).count() == 2


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_generated_topologies_come_out_of_the_database_as_their_true_edges(take: Take, seed: int) -> None:
    made = topology(seed)
    tail, groups = take(), take("groups")
    save(tail, _records(made, random.Random(seed)))
    _save_groups(groups, made)
    _save_queries(tail, made)
    flow = read(tail)
    assert {(str(edge.source), str(edge.target), edge.group) for edge in flow.edges} == made.edges


def read(lease: Lease) -> flow_queries.Flow:
    row = Cluster.objects.get(pk=lease.cluster_id)
    return flow_queries.read_flow(row, last_range("1h", now_ms=NOW_MS + 1_000), now_ms=NOW_MS + 1_000).flow


def _records(made: Topology, dice: random.Random) -> list[TransactionRecord]:
    """Return a transaction of each application and topic, some of them still open."""
    records: list[TransactionRecord] = []
    logs = {each.application: each.log_partition for each in made.offset_writes}
    for number, each in enumerate(made.writes):
        query = next((query for query in made.queries if query.application == each.application), None)
        name = f"{each.application}-12345678-p0-g0-b0-s0" if query else f"{each.application}-{number}"
        steps = _STEPS if dice.random() < 0.8 else _STEPS[:1]
        records += life(name, each.topic, steps=steps)
    for application, log in logs.items():
        record = life(f"{application}-99", steps=_STEPS[:1])[0]
        records.append(record._replace(partitions=(TopicPartitions(OFFSETS_TOPIC, (log,)),)))
    return records


def _save_groups(lease: Lease, made: Topology) -> None:
    seen: dict[str, SeenGroup] = {}
    for each in made.groups:
        before = seen.get(each.group, SeenGroup(state="Stable", log_partition=each.log_partition))
        committed = {**before.committed, TopicPartition(each.topic, 0): Committed(5)}
        seen[each.group] = SeenGroup(state="Stable", log_partition=before.log_partition, committed=committed)
    committers = {(each.group, each.topic): each.application for each in made.groups if each.application}
    found = ObservedGroups(NOW_MS, seen, {}, committers=committers)
    group_store.save_groups(lease, found, group_store.GroupRows(lease, NOW_MS), now_ms=NOW_MS)


def _save_queries(lease: Lease, made: Topology) -> None:
    for each in made.queries:
        ledger_id = "12345678-0000-4000-8000-000000000000" if each.application else ""
        row = Query.objects.create(
            cluster_id=lease.cluster_id, ident=each.ident, name=each.name, state="running", sink=each.sink,
            prefix=each.application, ledger_id=ledger_id, planned=3, finished=2, rev=1,
        )  # fmt: skip
        ends = ", ".join(f'"{topic}": {{"0": 7}}' for topic in each.sources)
        row.batch_set.create(batch_id=3, offsets=[["0", f"{{{ends}}}"]], rev=1)
        if each.outputs:
            partitions = [[topic, 0] for topic in each.outputs]
            row.sinkdecision_set.create(
                batch_id=2, round=0, decided="prepared", by="driver", decided_ms=NOW_MS, generation=1,
                outcome="committed", transactions=[{"partitions": partitions}],
            )  # fmt: skip
