"""Proves on a real broker that the figures of a plan are the lower bounds they are called: other producers go
on writing between plan and execution, and the LSO and what is readable are at least as far as promised."""

import uuid

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from dashboard.models import Action
from fenceline.plans.plan import Act, Bound
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.action_worker import configured_cluster, execute_plan, make_plan, result_texts
from tests.kafka.producers import LONG, LibrdkafkaProducer, open_in
from tests.kafka.topic_records import end_offset
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


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
