"""Proves that tail and coordinators agree about every id while ids change, that what the tail missed is found
and corrected and nothing else is, and that the lists alone are enough where the topic may not be read."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from py4j.java_gateway import JavaGateway

from collectors.kafka.internal_topics import Tail
from collectors.kafka.markers import MarkerTail
from collectors.kafka.reconcile import Reconciler
from dashboard.models import Collector, Transaction
from dashboard.runtime import collector_store, loop
from dashboard.tasks import tails
from dashboard.transactions import reconcile_store
from dashboard.transactions.reconcile_store import ReconciledRows
from fenceline.decode import text
from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Reconciliation, format_agreement
from fenceline.kafka.transactional_ids import key_of
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.doctor_checks import grant_describe, signed_in
from tests.kafka.driven import only_cluster, read_slice, read_to_end, take_lease
from tests.kafka.producers import LibrdkafkaProducer, open_in
from tests.kafka.random_transactions import ClientCluster, RandomClient
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


class Stack:
    """A tail and a reconciler of one broker on an empty database, driven by hand."""

    def __init__(self, bootstrap: str, admin: dict[str, str] | None = None) -> None:
        # The tail of a cluster stays warm in its process, so each test needs a name of its own.
        self.name = f"reconcile-{random.getrandbits(40):x}"
        collector_store.sync_clusters([self.name])
        self.tail = take_lease(self.name, tails.tail_name(0))
        self.mine = take_lease(self.name, reconcile_store.NAME)
        self.rows = ReconciledRows(self.mine)
        self.properties = {"bootstrap.servers": bootstrap}
        properties = admin or self.properties
        self.reconciler = Reconciler(
            TransactionAdmin(properties), lambda: MarkerTail(ClusterReads(properties), megabytes=4)
        )

    def read(self) -> None:
        """Let the tail read everything up to now."""
        read_to_end(self.tail, tails.tailed, self.properties)

    def poll(self, full: bool) -> Reconciliation:
        """Poll until a list of that kind comes, and save what it finds."""
        if full:
            self.reconciler._full_at = 0.0
        found = self.reconciler.poll(loop.now_ms(), self.rows)
        assert found.full is full
        reconcile_store.save_reconciliation(self.mine, found, now_ms=loop.now_ms())
        return found

    def poll_when_due(self) -> Reconciliation:
        """Wait until a list is due, poll, and save what it finds."""
        loop.stop_requested.wait(self.reconciler.wait_s())
        found = self.reconciler.poll(loop.now_ms(), self.rows)
        reconcile_store.save_reconciliation(self.mine, found, now_ms=loop.now_ms())
        return found


@pytest.fixture
def stack(kafka: Broker) -> Iterator[Stack]:
    made = Stack(kafka.bootstrap)
    made.reconciler.poll(loop.now_ms(), made.rows)
    yield made
    made.reconciler.close()


def open_transaction(bootstrap: str, name: str) -> LibrdkafkaProducer:
    create_topics(bootstrap, name)
    producer = open_in(bootstrap, name, name, 0, 2)
    return producer


def test_changes_that_the_tail_missed_are_found_and_corrected(kafka: Broker, stack: Stack) -> None:
    missed, stale = (f"missed-{stack.name}", f"stale-{stack.name}")
    producers = [open_transaction(kafka.bootstrap, name) for name in (missed, stale)]
    initialise_ids(kafka.bootstrap, [f"idle-{stack.name}"])
    stack.read()
    healthy = Transaction.objects.count()
    # A row that a tail with a fault would have left out, one left behind, and one that no coordinator knows.
    Transaction.objects.filter(transactional_id=missed).delete()
    Transaction.objects.filter(transactional_id=stale).update(state="CompleteCommit", log_offset=0)
    ghost = Transaction.objects.defer(None).get(transactional_id=f"idle-{stack.name}")
    ghost.pk, ghost.key, ghost.transactional_id = None, b"g" * 32, "ghost"
    ghost.save()
    Transaction.objects.filter(transactional_id="ghost").update(key=key_of(b"ghost"))
    first = stack.poll(full=True)
    assert first.corrections == ()
    assert first.pending == 3
    stack.read()
    second = stack.poll(full=True)
    assert second.corrections == ()
    stack.read()
    third = stack.poll(full=True)
    assert {each.record.transactional_id for each in third.corrections} == {missed, stale, "ghost"}
    assert Transaction.objects.count() == healthy
    for name in missed, stale:
        row = Transaction.objects.get(transactional_id=name)
        assert (row.state, row.partition_count, row.timeout_ms, row.log_offset) == ("Ongoing", 2, 900_000, -1)
    detail = Collector.objects.get(name="reconcile").detail
    assert detail["corrected"] == 3
    assert format_agreement(detail["agreed"], detail["compared"]) != "100 %"
    stack.read()
    after = stack.poll(full=True)
    assert (after.corrections, after.pending, after.compared_ids) == ((), 0, healthy)
    assert format_agreement(after.agreed, after.compared_ids) == "100 %"
    # The next record wins.
    for producer in producers:
        producer.commit()
    stack.read()
    assert set(
        Transaction.objects.filter(transactional_id__in=[missed, stale]).values_list("state", flat=True)
    ) <= {"CompleteCommit", "PrepareCommit"}
    assert not Transaction.objects.filter(log_offset=-1).exists()


def test_an_open_row_that_its_coordinator_has_closed_is_found_by_the_list_of_open_ones(
    kafka: Broker, stack: Stack
) -> None:
    name = f"closed-{stack.name}"
    open_transaction(kafka.bootstrap, name).commit()
    stack.read()
    Transaction.objects.filter(transactional_id=name).update(state="Ongoing", log_offset=0)
    assert stack.poll(full=False).corrections == ()
    stack.read()
    (corrected,) = stack.poll(full=False).corrections
    assert corrected.record.transactional_id == name
    assert Transaction.objects.get(transactional_id=name).state == "CompleteCommit"


def test_ids_hidden_by_acls_are_no_difference(acl_broker: Broker) -> None:
    names = [f"seen-{random.getrandbits(40):x}", f"hidden-{random.getrandbits(40):x}"]
    initialise_ids(acl_broker.bootstrap, names)
    grant_describe(acl_broker, "reconciler", names[0])
    stack = Stack(acl_broker.bootstrap, signed_in(acl_broker, "reconciler"))
    for _ in range(4):
        stack.read()
        found = stack.poll(full=True)
        assert found.corrections == ()
    stack.reconciler.close()
    assert set(names) <= rows().keys()
    assert found.hidden == len(rows()) - found.agreed > 0
    assert (found.pending, format_agreement(found.agreed, found.compared_ids)) == (0, "100 %")


@pytest.mark.parametrize("times", [10, pytest.param(20, marks=pytest.mark.matrix)])
def test_nothing_is_corrected_while_ids_change_fast(
    kafka: Broker, java: JavaGateway, stack: Stack, times: int
) -> None:
    topics = (f"lively-{stack.name}",)
    create_topics(kafka.bootstrap, *topics)
    over = Event()
    #: Transactions that clients have made, and what the polls found.
    lived: list[int] = []
    polls: list[Reconciliation] = []

    def have_both_been_busy() -> bool:
        polls.extend(poll_twice(stack))
        return len(polls) >= 2 * times and sum(lived) > 20

    with JavaAdmin(java, kafka.bootstrap) as oracle:
        cluster = ClientCluster(kafka.bootstrap, java, oracle, topics)
        ids = [f"lively-{stack.name}-{number}" for number in range(4)]
        lives = [RandomClient(cluster, name, random.Random(name)) for name in ids]
        with ThreadPoolExecutor(len(lives)) as pool:
            running = [pool.submit(run_until, life, over, lived) for life in lives]
            try:
                wait_for(have_both_been_busy, "ids change and lists come", 120)
            finally:
                over.set()
        for each in running:
            each.result()
    assert [found.corrections for found in polls] == [()] * len(polls)
    assert any(found.pending for found in polls)
    stack.read()
    for _ in range(3):
        last = stack.poll(full=True)
    assert format_agreement(last.agreed, last.compared_ids) == "100 %"
    assert last.pending == 0


def run_until(life: RandomClient, over: Event, lived: list[int]) -> None:
    while not over.is_set():
        life.run(3)
        lived.append(3)


def poll_twice(stack: Stack) -> list[Reconciliation]:
    stack.read()
    return [stack.poll(full=False), stack.poll(full=True)]


def test_lists_alone_are_enough_where_the_topic_may_not_be_read(
    kafka: Broker, java: JavaGateway, stack: Stack
) -> None:
    name = f"alone-{stack.name}"
    producer = open_transaction(kafka.bootstrap, name)
    collector_store.save_trouble(
        stack.tail, "no READ on __transaction_state at here; grant it", now_ms=loop.now_ms()
    )
    found = stack.poll(full=True)
    assert found.alone
    with JavaAdmin(java, kafka.bootstrap) as oracle:
        listed = oracle.list_transactions()
        assert rows() == {text.escape_bytes(key.encode()): said.state for key, said in listed.items()}
        said = oracle.describe_transactions([name])[name]
    row = Transaction.objects.get(transactional_id=name)
    expected = ("Ongoing", said.started_ms, said.timeout_ms, said.producer_epoch, 2)
    assert (row.state, row.started_ms, row.timeout_ms, row.producer_epoch, row.partition_count) == expected
    assert "without an error" in Collector.objects.get(name="reconcile").detail["may_hide"]
    assert stack.poll(full=False).corrections == ()
    producer.commit()
    wait_for(lambda: stack.poll(full=False) and rows()[name] == "CompleteCommit", "the commit is seen")
    Transaction.objects.filter(transactional_id=name).update(transactional_id="forgotten", key=b"f" * 32)
    Transaction.objects.filter(key=b"f" * 32).update(key=key_of(b"forgotten"))
    stack.poll(full=True)
    assert "forgotten" not in rows()
    assert rows()[name] == "CompleteCommit"
    # READ was granted: records take the rows over, and both agree.
    stack.read()
    assert not Transaction.objects.filter(log_offset=-1).exists()
    for _ in range(2):
        after = stack.poll(full=True)
    assert not after.alone
    assert format_agreement(after.agreed, after.compared_ids) == "100 %"
    assert rows()[name] == TransactionState.COMPLETE_COMMIT


def rows() -> dict[str, str]:
    return dict(Transaction.objects.values_list("transactional_id", "state"))


def test_a_broker_that_keeps_no_log_is_shown_by_its_lists_and_never_called_read(
    kafka: Broker, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker answers for a topic of another name that it does not exist, as one without the log does."""
    monkeypatch.setattr(
        tails, "Tail", lambda *args, **options: Tail(*args, **options | {"topic": "__no_log_here"})
    )
    name = f"listed-{stack.name}"
    producer = open_transaction(kafka.bootstrap, name)
    with only_cluster(stack.name, stack.properties):
        read_slice(stack.tail, tails.tailed, 0.1)
        tail = Collector.objects.get(cluster_id=stack.tail.cluster_id, name=tails.tail_name(0))
        assert (tail.error, tail.behind) == ("", 0), "nobody has needed the log yet, as far as is known"
        for _ in range(3):
            stack.poll(full=True)
        read_slice(stack.tail, tails.tailed, 0.1)
        tail.refresh_from_db()
        assert "keeps no __transaction_state" in tail.error
        assert stack.poll(full=True).alone
    row = Transaction.objects.get(cluster_id=stack.tail.cluster_id, transactional_id=name)
    assert row.state == TransactionState.ONGOING
    detail = Collector.objects.get(cluster_id=stack.tail.cluster_id, name=reconcile_store.NAME).detail
    assert detail["corrected"] == 0
    producer.abort()
