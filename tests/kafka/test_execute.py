"""Proves that a fence aborts just the transaction that was previewed and fences its producer, that whatever
happens between preview and execution makes the plan stale or fails clearly with nothing written, and that an
action whose worker stopped is not executed again but reported as Kafka's own admin client describes it."""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import KafkaException
from py4j.java_gateway import JavaGateway

from dashboard.actions import follow_up
from dashboard.models import Action
from dashboard.runtime import loop
from fenceline.plans.plan import Act
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.cases import cases
from tests.java.clients import Description, JavaAdmin, JavaError, JavaProducer
from tests.kafka.action_worker import (
    configured_cluster,
    confirm_plan,
    execute_plan,
    execute_until_killed,
    expire_lease,
    kill_at,
    make_plan,
    outcomes,
    result_texts,
)
from tests.kafka.driven import take_lease
from tests.kafka.producers import LibrdkafkaProducer, TransactionalProducer
from tests.kafka.stray_records import (
    identity_of,
    write_stray_records,  # fmt: skip
)
from tests.waiting import wait_for
from transaction_admin.api import Ended, Fencing
from transaction_admin.kafka_python import TransactionAdmin

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

#: Either library's word for what a broker refuses.
REFUSALS = (KafkaException, JavaError)
TIMEOUT_MS = 777_000


class Stage:
    """A topic of its own on a broker, producers on it, and Kafka's own admin client as the oracle."""

    def __init__(self, broker: Broker, gateway: JavaGateway, admin: JavaAdmin) -> None:
        self.broker, self.gateway, self.admin = broker, gateway, admin
        self.topic = f"act-{uuid.uuid4().hex[:8]}"
        create_topics(broker.bootstrap, self.topic)

    def producer(
        self, name: str, *, java: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionalProducer:
        settings = {"transaction.timeout.ms": str(timeout_ms)}
        made: TransactionalProducer
        if java:
            made = JavaProducer(self.gateway, self.broker.bootstrap, name, settings)
        else:
            made = LibrdkafkaProducer(self.broker.bootstrap, name, settings)
        made.init()
        return made

    def opened(self, name: str, *, java: bool = False, timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer:
        """Return a producer with a transaction that is open."""
        producer = self.producer(name, java=java, timeout_ms=timeout_ms)
        begin(producer, self.topic)
        return producer

    def describe(self, name: str) -> Description:
        return self.admin.describe_transactions([name])[name]


def begin(producer: TransactionalProducer, topic: str) -> None:
    producer.begin()
    producer.send(topic, 0)
    producer.flush()


@contextmanager
def staged(broker: Broker, gateway: JavaGateway) -> Iterator[Stage]:
    with (
        JavaAdmin(gateway, broker.bootstrap) as admin,
        configured_cluster({"bootstrap.servers": broker.bootstrap}),
    ):
        yield Stage(broker, gateway, admin)


@pytest.fixture
def stage(kafka_42: Broker, java: JavaGateway) -> Iterator[Stage]:
    with staged(kafka_42, java) as made:
        yield made


@pytest.fixture
def each(kafka: Broker, java: JavaGateway) -> Iterator[Stage]:
    """On each version of the broker."""
    with staged(kafka, java) as made:
        yield made


@pytest.mark.parametrize("java_client", [False, True])
def test_a_fence_aborts_the_previewed_transaction_and_fences_its_producer(
    each: Stage, java_client: bool
) -> None:
    stage = each
    name = f"{stage.topic}-id"
    producer = stage.opened(name, java=java_client)
    before = stage.describe(name)
    row = execute_plan(make_plan(Act.FENCE, name))
    after = stage.describe(name)
    assert (row.state, outcomes(row)) == (Action.State.DONE, ["done"]), result_texts(row)
    assert (after.state, after.timeout_ms) == ("Empty", before.timeout_ms)
    assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 2)
    assert row.results[0]["parts"][0] == {"where": name, "code": 0, "words": "initialised"}
    assert row.followed_until_ms is not None
    with pytest.raises(REFUSALS):
        producer.commit()
    assert stage.describe(name) == after
    producer.abandon()


def commits(stage: Stage, name: str, producer: TransactionalProducer) -> str:
    producer.commit()
    return "its producer has committed"


def aborts(stage: Stage, name: str, producer: TransactionalProducer) -> str:
    producer.abort()
    return "aborted"


def begins_again(stage: Stage, name: str, producer: TransactionalProducer) -> str:
    producer.commit()
    begin(producer, stage.topic)
    return "another transaction has begun since"


def is_taken_over(stage: Stage, name: str, producer: TransactionalProducer) -> str:
    stage.opened(name).abandon()
    return "another producer took it over: epoch"


def times_out(stage: Stage, name: str, producer: TransactionalProducer) -> str:
    wait_for(lambda: stage.describe(name).state == "CompleteAbort", "the transaction times out", 60)
    return "its transaction timed out"


BETWEEN = [commits, aborts, begins_again, is_taken_over, times_out]


@pytest.mark.parametrize("happens", BETWEEN)
def test_a_transaction_that_changed_since_the_preview_is_not_ended(
    each: Stage, happens: Callable[[Stage, str, TransactionalProducer], str]
) -> None:
    stage = each
    # Protocol 2, which raises the epoch with each end, takes both sides.
    java_client = stage.broker.version == "4.2.0"
    name = f"{stage.topic}-id"
    timeout_ms = 2_000 if happens is times_out else TIMEOUT_MS
    producer = stage.opened(name, java=java_client, timeout_ms=timeout_ms)
    plan = make_plan(Act.FENCE, name)
    reason = happens(stage, name, producer)
    settled = wait_for(lambda: is_settled(stage, name), "its end is settled")
    row = execute_plan(plan)
    assert (row.state, outcomes(row)) == (Action.State.STALE, ["stale"])
    assert reason in result_texts(row)
    assert "nothing was asked" in result_texts(row)
    assert stage.describe(name) == settled, "an InitProducerId would have raised the epoch"
    assert row.followed_until_ms is None
    producer.abandon()


def is_settled(stage: Stage, name: str) -> Description | None:
    said = stage.describe(name)
    return None if said.state.startswith("Prepare") else said


def test_a_change_right_before_the_request_is_detected(stage: Stage) -> None:
    name = f"{stage.topic}-id"
    producer = stage.opened(name)

    def commit(step: str, subject: str) -> None:
        if step == "InitProducerId":
            producer.commit()

    row = execute_plan(make_plan(Act.FENCE, name), commit)
    assert (row.state, row.followed_until_ms) == (Action.State.STALE, None)
    assert "its producer has committed" in result_texts(row)
    begin(producer, stage.topic)
    producer.commit()


def test_a_coordinator_refuses_a_request_with_an_outdated_producer(each: Stage) -> None:
    """A producer that came between the last check and the request, and has nothing open, stays."""
    stage = each
    name = f"{stage.topic}-id"
    stage.opened(name).abandon()
    seen = stage.describe(name)
    now = stage.producer(name)
    with closing(TransactionAdmin({"bootstrap.servers": stage.broker.bootstrap})) as admin:
        fencing = Fencing(name, TIMEOUT_MS, seen.producer_id, seen.producer_epoch)
        assert admin.fence_producers([fencing], timeout_s=30)[name] == Ended(90, "PRODUCER_FENCED")
    begin(now, stage.topic)
    now.commit()


def test_each_subject_is_checked_separately(stage: Stage) -> None:
    names = [f"{stage.topic}-{number}" for number in range(3)]
    producers = [stage.opened(name) for name in names]
    plan = make_plan(Act.FENCE, *names, f"{stage.topic}-never-made")
    producers[1].commit()
    row = execute_plan(plan)
    assert row.state == Action.State.PARTLY
    assert outcomes(row) == ["done", "stale", "done", "skipped"], result_texts(row)
    assert [stage.describe(name).state for name in names] == ["Empty", "CompleteCommit", "Empty"]
    assert f"{stage.topic}-never-made" not in stage.admin.list_transactions()
    for producer in producers:
        producer.abandon()


def test_the_blocked_lso_and_blocked_groups_are_followed_up(stage: Stage) -> None:
    """The LSO as it moves; other changes are reported once they have been collected."""
    name = f"{stage.topic}-id"
    producer = stage.opened(name)
    plain = LibrdkafkaProducer(stage.broker.bootstrap, f"{stage.topic}-other")
    plain.init()
    begin(plain, stage.topic)
    plain.commit()
    row = execute_plan(make_plan(Act.FENCE, name))
    lease = take_lease("acting", follow_up.NAME)

    def follow_up_texts() -> list[str]:
        follow_up.follow_actions(lease, now_ms=loop.now_ms())
        row.refresh_from_db()
        return [each["words"] for each in row.follow_up]

    wait_for(follow_up_texts, "the LSO moves")
    # Two records, an abort marker and a commit marker. It is told once.
    assert follow_up_texts() == [f"LSO of {stage.topic}-0 moved 0 → 4"]
    follow_up.close_connections("acting")
    producer.abandon()


# Whose worker died.


@cases(
    ("verify", 0, Action.State.FAILED, ["failed", "failed"], "before it came to it: nothing was asked"),
    ("InitProducerId", 0, Action.State.FAILED, ["failed", "failed"], "still open as it was seen"),
    ("InitProducerId", 1, Action.State.PARTLY, ["done", "failed"], "it is aborted: epoch 0 → 1"),
    ("kept", 0, Action.State.PARTLY, ["done", "failed"], "before it came to it: nothing was asked"),
    ("kept", 1, Action.State.DONE, ["done", "done"], "its producer fenced: epoch 0 → 2"),
)
def test_an_action_of_a_stopped_worker_is_reported_as_it_is_found(
    stage: Stage, step: str, which: int, state: str, outcome: list[str], said: str
) -> None:
    names = [f"{stage.topic}-{number}" for number in range(2)]
    for name in names:
        stage.opened(name).abandon()
    row = execute_until_killed(make_plan(Act.FENCE, *names), kill_at(step, which))
    wait_for(lambda: all(is_settled(stage, name) for name in names), "no end is on its way")
    seen = {name: stage.describe(name) for name in names}
    assert follow_up.settle_action(row, now_ms=loop.now_ms())
    row.refresh_from_db()
    assert (row.state, outcomes(row)) == (state, outcome), result_texts(row)
    assert said in result_texts(row)
    assert {name: stage.describe(name) for name in names} == seen, "it only looks"
    assert not follow_up.settle_action(row, now_ms=loop.now_ms())


def test_an_action_that_no_worker_took_has_failed(stage: Stage) -> None:
    name = f"{stage.topic}-id"
    stage.opened(name).abandon()
    row = confirm_plan(make_plan(Act.FENCE, name))
    expire_lease(row)
    assert follow_up.settle_action(row, now_ms=int(time.time() * 1_000))
    row.refresh_from_db()
    assert row.state == Action.State.FAILED
    assert "no worker took it in time" in result_texts(row)


# A broker that dies.


def test_a_broker_that_stops_is_a_clear_failure(acl_broker: Broker, java: JavaGateway) -> None:
    """Nothing was written when it is back; its partitions have a new leader epoch by then."""
    with staged(acl_broker, java) as stage:
        names = [f"{stage.topic}-{number}" for number in range(3)]
        producers = [stage.opened(name) for name in names]
        write_stray_records(acl_broker, "hangs", identity_of(acl_broker, "hangs"), (stage.topic, 1))
        seen = {name: stage.describe(name) for name in names}
        fences, hanging = make_plan(Act.FENCE, *names[:2]), make_plan(Act.ABORT_MARKER, f"{stage.topic}-1")
        left = execute_until_killed(make_plan(Act.FENCE, names[2]), kill_at("InitProducerId"))
        row = execute_plan(fences, lambda step, _: acl_broker.kill() if step == "InitProducerId" else None)
        away = execute_plan(hanging)
        assert not follow_up.settle_action(left, now_ms=loop.now_ms()), "it waits for the cluster"
        acl_broker.start()
        assert (row.state, outcomes(row)) == (Action.State.FAILED, ["failed"] * 2)
        assert (away.state, outcomes(away)) == (Action.State.FAILED, ["failed"])
        for each in result_texts(row).splitlines() + result_texts(away).splitlines():
            assert each.startswith("nothing was asked for it: cannot ask the coordinators at"), each
        wait_for(lambda: {name: stage.describe(name) for name in names} == seen, "all is as it was", 60)
        moved = execute_plan(hanging)
        assert outcomes(moved) == ["stale"]
        assert re.search(r"its leader has moved: leader epoch \d+ → \d+", result_texts(moved))
        assert opened_at(stage, 1), "no marker was written"
        for producer in producers:
            producer.abandon()


def test_an_action_without_visibility_for_long_is_unknown(stage: Stage) -> None:
    name = f"{stage.topic}-id"
    stage.opened(name).abandon()
    row = execute_until_killed(make_plan(Act.FENCE, name), kill_at("InitProducerId"))
    with configured_cluster({"bootstrap.servers": "127.0.0.1:1"}):
        assert not follow_up.settle_action(row, now_ms=loop.now_ms())
        row.refresh_from_db()
        assert row.state == Action.State.EXECUTING
        expire_lease(row)
        assert follow_up.settle_action(row, now_ms=loop.now_ms() + 3_600_000)
    row.refresh_from_db()
    assert (row.state, outcomes(row)) == (Action.State.UNKNOWN, ["unknown"])
    assert "its worker died while InitProducerId is being sent" in result_texts(row)


def opened_at(stage: Stage, partition: int) -> list[int]:
    """Return where transactions begin that are open in a partition, as Java's admin client reports."""
    where = stage.topic, partition
    said = stage.admin.describe_producers([where])[where]
    return [start for _, _, start in said if start is not None]
