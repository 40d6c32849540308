"""Proves of fences by actions, on real brokers: each is attributed with certainty, by the producer id and
epoch of its answer, whether the tail reads its records before the action's result is stored, after it or
between; a takeover by another client, or a fence by Kafka's own tool, is not.

The figures of a plan are the lower bounds they are called: other producers go on writing between plan and
execution, and the LSO and what is readable are at least as far as promised.

An id of a two-phase commit is fenced by an admin's force alone, and then is. Such ids have a timeout that
never ends, which a broker refuses to any other client: it is made while the broker accepts any timeout, and
fenced once it accepts only the usual ones.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from py4j.java_gateway import JavaGateway

from collectors.kafka.internal_topics import Tail
from dashboard.history import queries as history_queries
from dashboard.models import Action, Transaction, TransitionRecord
from dashboard.runtime import loop
from dashboard.transactions import attributions, store
from fenceline.facts import TWO_PHASE_COMMIT_TIMEOUT_MS, Transition, TransitionKind
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from fenceline.plans.plan import Act, Bound, RefusalReason
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.action_worker import (
    CLUSTER,
    configured_cluster,
    execute_plan,
    make_plan,
    outcomes,
    result_texts,
)
from tests.kafka.driven import at_once, take_lease
from tests.kafka.planning_cluster import refusal_reasons
from tests.kafka.producers import LONG, LibrdkafkaProducer, open_in
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of
from tests.kafka.test_execute import Stage, staged
from tests.kafka.topic_records import end_offset
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
NAME = "two-phase"


class Intake:
    """The tail of a broker's `__transaction_state`, read on demand."""

    def __init__(self, broker: Broker) -> None:
        self._tail = Tail({"bootstrap.servers": broker.bootstrap})
        self._sought = False
        self._lease = take_lease(CLUSTER, "transaction_state")

    def read(self) -> None:
        """Save every record that is there by now."""
        if not self._sought:
            # A broker makes the topic with its first producer.
            self._tail.seek("", {})
            self._sought = True
        began_ms = time.time() * 1_000
        with at_once():
            wait_for(lambda: self._poll_once() > began_ms, "the end of the topic", 30)

    def _poll_once(self) -> int:
        look = self._tail.poll(0.02)
        if look.count or look.moves or look.seen_through_ms:
            store.save_batch(self._lease, look, topic_id=self._tail.topic_id, rate=0.0, now_ms=loop.now_ms())
            self._tail.mark_saved(look)
        return look.seen_through_ms or 0

    def close(self) -> None:
        self._tail.close()


@pytest.fixture
def each(kafka: Broker, java: JavaGateway) -> Iterator[Stage]:
    """On each version of the broker."""
    with staged(kafka, java) as made:
        yield made


@pytest.fixture
def intake(each: Stage) -> Iterator[Intake]:
    made = Intake(each.broker)
    yield made
    made.close()


def notable(name: str) -> list[TransitionRecord]:
    rows = TransitionRecord.objects.filter(transactional_id=name).select_related("action")
    return list(rows.order_by("log_offset"))


def recents(name: str) -> tuple[Transition, ...]:
    return transition_ring.unpack_ring(bytes(Transaction.objects.get(key=key_of(name.encode())).recent), 0)


#: At which steps of the action the tail reads; "answered" is right before the result is stored.
ORDERS = {"before": ("verify", "InitProducerId", "answered"), "between": ("InitProducerId",), "after": ()}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("java_client", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_a_fence_by_an_action_is_attributed_in_either_order(
    each: Stage, intake: Intake, order: str, java_client: bool
) -> None:
    name = f"{each.topic}-id"
    producer = each.opened(name, java=java_client)
    steps = ORDERS[order]
    kinds: list[str] = []

    def observe(step: str, subject: str) -> None:
        if step in steps:
            intake.read()
            kinds.extend(row.kind for row in notable(name))

    row = execute_plan(make_plan(Act.FENCE, name), observe)
    assert outcomes(row) == ["done"], result_texts(row)
    intake.read()
    assert "admin_fence" not in kinds, "nothing is ours before the answer is stored"
    assert bool(kinds) == bool(steps), "it reads as somebody else's until then"
    (fence,) = [each for each in notable(name) if each.kind != "reinit"]
    assert (fence.kind, fence.confidence, fence.action) == ("admin_fence", "certain", row), kinds
    said = each.describe(name)
    assert (fence.producer_id, fence.producer_epoch) == (said.producer_id, said.producer_epoch - 1)
    assert None not in (fence.completed_ms, fence.gap_ms)
    assert history_queries.verdict_evidence(fence).startswith(f"Fenced by olga, action {row.pk}: ")
    newest = recents(name)[0]
    assert newest.kind is TransitionKind.ADMIN_FENCE
    assert attributions.of_transitions(CLUSTER, key_of(name.encode()), [newest]) == [row]
    # The id's next producer is not ours.
    producer.abandon()
    each.producer(name).abandon()
    intake.read()
    assert [row.action for row in notable(name)][-1] is None
    assert notable(name)[-1].kind == "reinit"


def by_another_producer(stage: Stage, name: str) -> None:
    stage.producer(name).abandon()


def by_kafkas_own_tool(stage: Stage, name: str) -> None:
    stage.admin.fence_producers([name])


@pytest.mark.parametrize("fences", [by_another_producer, by_kafkas_own_tool])
def test_a_fence_by_another_client_is_not_attributed(
    each: Stage, intake: Intake, fences: Callable[[Stage, str], None]
) -> None:
    name = f"{each.topic}-id"
    each.opened(name).abandon()
    plan = make_plan(Act.FENCE, name)
    fences(each, name)
    row = execute_plan(plan)
    assert row.state == Action.State.STALE
    intake.read()
    assert [each.action for each in notable(name)] == [None] * len(notable(name))
    assert notable(name)


def readable(broker: Broker, topic: str, start: int, end: int) -> int:
    """Records that a read_committed consumer gets from `start` to before `end`, an LSO."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    offsets: list[int] = []
    consumer.assign([Position(topic, 0, start)])

    def is_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            offsets.append(message.offset() or 0)
        return consumer.position([Position(topic, 0)])[0].offset >= end

    wait_for(is_read, f"{topic} is read to {end}")
    consumer.close()
    return sum(offset < end for offset in offsets)


def write(producer: LibrdkafkaProducer, topic: str, *, records: int, how: str = "commit") -> None:
    producer.begin()
    for _ in range(records):
        producer.send(topic, 0)
    producer.flush()
    if how:
        getattr(producer, how)()


@pytest.mark.parametrize("late", ["ends", "stays open"])
def test_figures_of_a_fence_are_lower_bounds_while_others_write(kafka_42: Broker, late: str) -> None:
    name = f"figures-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, name)
    with configured_cluster({"bootstrap.servers": kafka_42.bootstrap}):
        abandoned = open_in(kafka_42.bootstrap, name, name, 0, records=3)
        other = LibrdkafkaProducer(kafka_42.bootstrap, f"{name}-other", LONG)
        other.init()
        write(other, name, records=5)
        # A commit returns before its marker is written.
        wait_for(lambda: end_offset(kafka_42.bootstrap, name, committed=False) == 9, "the marker")
        plan = make_plan(Act.FENCE, name)
        (subject,) = plan.subjects
        promised = {each.name: each for each in subject.effects}
        ((_, _, lso, _, at_least),) = subject.held
        assert (lso, at_least) == (0, 9)
        assert (promised["records_released"].amount, promised["records_lost"].amount) == (5, 3)
        for each in ("records_released", "records_lost"):
            assert promised[each].bound is Bound.AT_LEAST
        # What it writes itself until it is fenced, and what others write, abort and leave open.
        abandoned.send(name, 0)
        abandoned.flush()
        write(other, name, records=7)
        write(other, name, records=2, how="abort")
        write(other, name, records=4, how="" if late == "stays open" else "commit")
        row = execute_plan(plan)
        assert row.state == Action.State.DONE, result_texts(row)
        # The fence's own marker takes an offset, too.
        end = {"ends": 27, "stays open": 21}[late]
        wait_for(lambda: end_offset(kafka_42.bootstrap, name, committed=True) == end, f"the LSO {end}")
        assert end >= at_least
        assert readable(kafka_42, name, lso, end) == {"ends": 16, "stays open": 12}[late]
        assert readable(kafka_42, name, lso, end) >= 5
    abandoned.abandon()
    other.abandon()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker on which an id has a transaction open that never times out."""
    with Broker(tmp_path, properties={"transaction.max.timeout.ms": str(2**31 - 1)}) as broker:
        create_topics(broker.bootstrap, NAME, partitions=1)
        identity = identity_of(broker, NAME, TWO_PHASE_COMMIT_TIMEOUT_MS)
        producer = RawProducer(broker.bootstrap, NAME, identity=identity)
        producer.send(NAME, 0)
        producer.abandon()
        broker.stop()
        broker.properties = {}
        broker.start()
        broker.wait_ready()
        yield broker


def test_a_two_phase_id_is_fenced_by_force_with_an_accepted_timeout(
    broker: Broker, java: JavaGateway
) -> None:
    with (
        configured_cluster({"bootstrap.servers": broker.bootstrap}),
        JavaAdmin(java, broker.bootstrap) as admin,
    ):
        assert admin.describe_transactions([NAME])[NAME].timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS
        refused = make_plan(Act.FENCE, NAME, force=False)
        assert refusal_reasons(refused) == [[RefusalReason.TWO_PHASE, RefusalReason.HEALTHY]]
        forced = make_plan(Act.FENCE, NAME)
        assert "with a timeout of 1 min, since only a two-phase producer" in forced.subjects[0].steps[0].words
        row = execute_plan(forced)
        assert row.state == Action.State.DONE, result_texts(row)
        said = admin.describe_transactions([NAME])[NAME]
    assert (said.state, said.producer_epoch, said.timeout_ms) == ("Empty", 2, 60_000)
