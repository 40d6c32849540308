"""Proves that transactions which another process has opened are ended as asked, that to repeat it is answered
alike, and that every refusal comes back as Kafka's own code, on each version of the broker."""

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.producers import LibrdkafkaProducer
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for
from transaction_admin.api import Ended, Ending, Fencing
from transaction_admin.kafka_python import TransactionAdmin

pytestmark = [pytest.mark.kafka, pytest.mark.versioned]

WITHIN_S = 30.0


@pytest.fixture
def admin(kafka: Broker) -> Iterator[TransactionAdmin]:
    client = TransactionAdmin({"bootstrap.servers": kafka.bootstrap})
    yield client
    client.close()


def open_transactions(kafka: Broker, admin: TransactionAdmin, number: int, *, commit: bool) -> list[Ending]:
    """Open transactions, let their producers go, and return how they are to be ended."""
    topic = f"endings-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap, topic)
    names = [f"{topic}-{each}" for each in range(number)]
    for name in names:
        producer = LibrdkafkaProducer(kafka.bootstrap, name)
        producer.init()
        producer.begin()
        producer.send(topic, 0)
        producer.flush()
        producer.abandon()
    return [_ending(said, commit) for said in described(admin, names)]


def _ending(said: Described, commit: bool) -> Ending:
    assert said.state is TransactionState.ONGOING
    return Ending(said.transactional_id, said.producer_id, said.producer_epoch, commit=commit)


def described(admin: TransactionAdmin, names: list[str]) -> list[Described]:
    return [each for each in admin.describe_transactions(names).values() if isinstance(each, Described)]


def states(admin: TransactionAdmin, endings: list[Ending]) -> set[TransactionState]:
    return {each.state for each in described(admin, [each.transactional_id for each in endings])}


@pytest.mark.parametrize("commit", [True, False])
def test_many_transactions_are_ended_at_once_and_repeatedly(
    kafka: Broker, admin: TransactionAdmin, commit: bool
) -> None:
    endings = open_transactions(kafka, admin, 9, commit=commit)
    for _ in range(2):
        # The second time markers may be on their way: it is asked again until they are written.
        answers = admin.end_transactions(endings, timeout_s=WITHIN_S)
        assert answers == {each.transactional_id: Ended(0, "") for each in endings}
    ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    wait_for(lambda: states(admin, endings) == {ended}, "all markers are written")


def test_an_end_keeps_the_epoch_so_that_it_can_be_repeated(kafka: Broker, admin: TransactionAdmin) -> None:
    endings = open_transactions(kafka, admin, 1, commit=True)
    admin.end_transactions(endings, timeout_s=WITHIN_S)
    said = described(admin, [endings[0].transactional_id])[0]
    assert (said.producer_id, said.producer_epoch) == endings[0][1:3]


def test_refusals_have_kafka_s_error_codes(kafka: Broker, admin: TransactionAdmin) -> None:
    committed, fenced, other = open_transactions(kafka, admin, 3, commit=True)
    assert admin.end_transactions([committed], timeout_s=WITHIN_S)[committed.transactional_id].code == 0
    initialise_ids(kafka.bootstrap, [fenced.transactional_id])
    unknown = Ending(f"{committed.transactional_id}-never-made", 1, 0, commit=True)
    asked = [
        committed._replace(commit=False),
        fenced,
        other._replace(producer_epoch=other.producer_epoch + 1),
        other._replace(transactional_id=unknown.transactional_id),
    ]
    answers = admin.end_transactions(asked, timeout_s=WITHIN_S)
    assert [answers[each.transactional_id] for each in asked] == [
        Ended(48, "INVALID_TXN_STATE"),
        Ended(90, "PRODUCER_FENCED"),
        Ended(90, "PRODUCER_FENCED"),
        Ended(49, "INVALID_PRODUCER_ID_MAPPING"),
    ]
    assert admin.end_transactions([other], timeout_s=WITHIN_S)[other.transactional_id].code == 0


def test_many_producers_are_fenced_at_once(kafka: Broker, admin: TransactionAdmin) -> None:
    """What is open is aborted, whoever had it open is fenced, and the id keeps its timeout."""
    endings = open_transactions(kafka, admin, 9, commit=True)
    before = described(admin, [each.transactional_id for each in endings])
    fencings = [Fencing(each.transactional_id, each.timeout_ms) for each in before]
    answers = admin.fence_producers(fencings, timeout_s=WITHIN_S)
    after = described(admin, [each.transactional_id for each in endings])
    assert answers == {
        each.transactional_id: Ended(0, "", each.producer_id, each.producer_epoch) for each in after
    }
    assert {each.state for each in after} == {TransactionState.EMPTY}
    assert [(each.producer_id, each.producer_epoch, each.timeout_ms) for each in after] == [
        (each.producer_id, each.producer_epoch + 2, each.timeout_ms) for each in before
    ]
    refused = admin.end_transactions(endings, timeout_s=WITHIN_S)
    assert {each.word for each in refused.values()} == {"PRODUCER_FENCED"}


def test_a_running_producer_with_an_open_transaction_is_fenced(
    kafka: Broker, admin: TransactionAdmin
) -> None:
    topic = f"fenced-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap, topic)
    producer = LibrdkafkaProducer(kafka.bootstrap, topic)
    producer.init()
    producer.begin()
    producer.send(topic, 0)
    producer.flush()
    assert admin.fence_producers([Fencing(topic, 60_000)], timeout_s=WITHIN_S)[topic].code == 0
    with pytest.raises(KafkaException) as refused:
        producer.commit()
    assert refused.value.args[0].code() == KafkaError._FENCED
    producer.abandon()


def test_without_a_timeout_the_first_answer_is_returned(kafka: Broker, admin: TransactionAdmin) -> None:
    ending = open_transactions(kafka, admin, 1, commit=True)[0]
    fencing = Fencing(ending.transactional_id, 60_000)
    assert admin.fence_producers([fencing], timeout_s=0)[ending.transactional_id] == Ended(
        51, "CONCURRENT_TRANSACTIONS"
    )
    wait_for(
        lambda: states(admin, [ending]) == {TransactionState.COMPLETE_ABORT},
        "the abort that it has begun is over",
    )


def test_an_unavailable_broker_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Broker(tmp_path_factory.mktemp("kafka-away")) as broker:
        admin = TransactionAdmin({"bootstrap.servers": broker.bootstrap}, timeout_s=5)
        try:
            endings = open_transactions(broker, admin, 3, commit=True)
            broker.kill()
            away = admin.end_transactions(endings, timeout_s=0.5)
            assert {each.code for each in away.values()} == {None}
            back = threading.Thread(target=broker.start)
            back.start()
            answers = admin.end_transactions(endings, timeout_s=120)
            back.join()
            assert {each.code for each in answers.values()} == {0}
        finally:
            admin.close()
