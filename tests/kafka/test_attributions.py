"""Proves on real brokers that a fence by an action is attributed with certainty, by the producer id and
epoch of its answer, whether the tail reads its records before the action's result is stored, after it or
between; and that a takeover by another client, or a fence by Kafka's own tool, is not."""

import time
from collections.abc import Callable, Iterator

import pytest
from py4j.java_gateway import JavaGateway

from collectors.kafka.internal_topics import Tail
from dashboard.history import queries as history_queries
from dashboard.models import Action, Transaction, TransitionRecord
from dashboard.runtime import loop
from dashboard.transactions import attributions, store
from fenceline.facts import Transition, TransitionKind
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.transactional_ids import key_of
from fenceline.plans.plan import Act
from sandbox.kafka import Broker
from tests.kafka.action_worker import CLUSTER, execute_plan, make_plan, outcomes, result_texts
from tests.kafka.driven import at_once, take_lease
from tests.kafka.test_execute import Stage, staged
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


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
