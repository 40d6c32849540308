"""Proves on Kafka 4.2 that an abort at the last epoch shows its origin: client or coordinator."""

from contextlib import suppress

import pytest

from fenceline.decode.transaction_state import decode_record
from fenceline.facts import (
    Confidence,
    TransactionRecord,
    TransactionState,
    Transition,
    TransitionKind,
    TransitionReason,
)
from fenceline.kafka.transitions import LAST_EPOCH, IdHistory, derive_transition, next_history
from sandbox.kafka import Broker
from sandbox.scenes.wire import CoordinatorConnection, CoordinatorRefused
from tests.brokers import create_topics
from tests.kafka.raw_producers import RawProducer, RawProducer2
from tests.kafka.topic_records import raw_records
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.soak]


def opened_at_last_epoch(broker: Broker, name: str) -> RawProducer2:
    """Return a producer of transaction version 2 that has a transaction open at the last epoch."""
    with CoordinatorConnection(broker.bootstrap, name) as coordinator:
        first = coordinator.init_producer_id()
        for _ in coordinator.init_again(LAST_EPOCH - 1 - first.epoch):
            pass
    producer = RawProducer2(broker.bootstrap, name)
    producer.init()
    assert producer.identity.epoch == LAST_EPOCH
    create_topics(broker.bootstrap, name)
    producer.send(name, 0)
    return producer


def abort_of(broker: Broker, name: str) -> Transition:
    """Return the verdict on an id's last end, once that is complete."""
    with CoordinatorConnection(broker.bootstrap, name) as coordinator:
        wait_for(
            lambda: coordinator.transaction_state() == TransactionState.COMPLETE_ABORT, f"{name} is aborted"
        )
    life, ends = IdHistory(), dict[int, Transition]()
    for raw in sorted(raw_records(broker.bootstrap)):
        record = decode_record(raw.key, raw.value)
        if isinstance(record, TransactionRecord) and record.transactional_id == name:
            step = derive_transition(life, record, raw.partition, raw.offset)
            life = next_history(life, record, step)
            ends |= {told.offset: told for told in step if told and told.open_ms is not None}
    return ends[max(ends)]


def test_a_clients_abort_at_the_last_epoch_continues_with_a_new_producer_id(kafka_42: Broker) -> None:
    producer = opened_at_last_epoch(kafka_42, "last-client")
    producer.abort()
    told = abort_of(kafka_42, "last-client")
    verdict = (told.kind, told.confidence, told.reason)
    assert verdict == (TransitionKind.CLIENT_ABORT, Confidence.CERTAIN, TransitionReason.CLIENT_AT_LAST_EPOCH)
    producer.abandon()


def test_the_coordinators_abort_at_the_last_epoch_keeps_the_producer_id(kafka_42: Broker) -> None:
    producer = opened_at_last_epoch(kafka_42, "last-broker")
    stranger = RawProducer(kafka_42.bootstrap, "last-broker")
    with suppress(CoordinatorRefused):
        stranger.init_once()
        raise AssertionError("initialised while a transaction was open")
    told = abort_of(kafka_42, "last-broker")
    verdict = (told.kind, told.confidence, told.reason)
    assert verdict == (TransitionKind.TAKEOVER, Confidence.PROBABLE, TransitionReason.BROKER_AT_LAST_EPOCH)
    for each in (producer, stranger):
        each.abandon()
