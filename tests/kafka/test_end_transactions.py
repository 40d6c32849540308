"""Proves that transactions which another process has opened are ended as asked, that to repeat it is answered
alike, and that every refusal comes back as Kafka's own code, on each version of the broker."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from fenceline.facts import TransactionState
from fenceline.kafka.reconcile import Described
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.producers import open_in
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
        open_in(kafka.bootstrap, name, topic, 0).abandon()
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
    expected = {each.transactional_id: Ended(0, "", each.producer_id, each.producer_epoch) for each in after}
    assert answers == expected
    assert {each.state for each in after} == {TransactionState.EMPTY}
    expected = [(each.producer_id, each.producer_epoch + 2, each.timeout_ms) for each in before]
    assert [(each.producer_id, each.producer_epoch, each.timeout_ms) for each in after] == expected
    refused = admin.end_transactions(endings, timeout_s=WITHIN_S)
    assert {each.word for each in refused.values()} == {"PRODUCER_FENCED"}


def test_without_a_timeout_the_first_answer_is_returned(kafka: Broker, admin: TransactionAdmin) -> None:
    ending = open_transactions(kafka, admin, 1, commit=True)[0]
    fencing = Fencing(ending.transactional_id, 60_000)
    expected = Ended(51, "CONCURRENT_TRANSACTIONS")
    assert admin.fence_producers([fencing], timeout_s=0)[ending.transactional_id] == expected
    wait_for(
        lambda: states(admin, [ending]) == {TransactionState.COMPLETE_ABORT},
        "the abort that it has begun is over",
    )


def test_an_unavailable_broker_is_waited_for(acl_broker: Broker) -> None:
    with closing(TransactionAdmin({"bootstrap.servers": acl_broker.bootstrap}, timeout_s=2)) as admin:
        endings = open_transactions(acl_broker, admin, 3, commit=True)
        acl_broker.kill()
        try:
            away = admin.end_transactions(endings, timeout_s=0.5)
            assert {each.code for each in away.values()} == {None}
        finally:
            back = threading.Thread(target=acl_broker.start)
            back.start()
        answers = admin.end_transactions(endings, timeout_s=120)
        back.join()
        acl_broker.wait_ready()
        assert {each.code for each in answers.values()} == {0}
