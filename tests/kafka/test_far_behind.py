"""Proves that a tail far behind keeps what a replay of the log keeps, wherever slices end and saves fail."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from unittest.mock import patch

import pytest
from confluent_kafka import Producer
from django.db import OperationalError

from dashboard.models import Cluster
from dashboard.tasks import tails
from sandbox.kafka import Broker
from tests import offline_replay
from tests.kafka.test_strange_records import Reader, check_rows
from tests.kafka.topic_records import TOPIC, raw_records
from tests.kafka.transactional_ids import initialise_ids
from tests.unit.test_aggregate import stream_of

pytestmark = pytest.mark.kafka

PARTITIONS, STEPS = 4, 2_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose log holds random histories in each partition."""
    properties = {"transaction.state.log.num.partitions": str(PARTITIONS)}
    with Broker(tmp_path_factory.mktemp("kafka"), properties=properties) as broker:
        initialise_ids(broker.bootstrap, ["first"])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "__admin_client"})
        for number in range(PARTITIONS):
            for key, raw in stream_of(number, ids=300, steps=STEPS):
                name = key[4:] + f"-{number}".encode()
                own = key[:2] + len(name).to_bytes(2, "big") + name
                producer.produce(TOPIC, raw.value, own, number)
            producer.flush(30)
        yield broker


@pytest.fixture(scope="module")
def expected(broker: Broker) -> offline_replay.ExpectedRows:
    """What must be kept of the log."""
    return offline_replay.replay_records(list(raw_records(broker.bootstrap)))


@pytest.fixture(autouse=True)
def _far_behind() -> Iterator[None]:
    """Let a few records be far behind, so that a poll reads a part of the log."""
    with (
        patch("collectors.kafka.internal_topics._FAR_BEHIND", 50),
        patch("collectors.kafka.internal_topics._FOLD_BYTES", 30_000),
        patch("transaction_admin.log_reader._MOST_BYTES", 30_000),
    ):
        yield


@pytest.mark.django_db
def test_what_is_polled_and_not_saved_is_read_again(
    broker: Broker, expected: offline_replay.ExpectedRows
) -> None:
    reader, dice = Reader(broker.bootstrap), random.Random(4)
    real = tails._TailSlice._save

    def save(self: tails._TailSlice, *arguments: object) -> None:
        if dice.random() < 0.3:
            raise tails.CannotSee("this save fails")
        # The slice is over behind it, more often than not.
        self._end = min(self._end, time.monotonic() + dice.random() * 0.1)
        real(self, *arguments)  # type: ignore[arg-type]

    with (
        patch.object(tails, "RETRY_S", 0.01),
        patch.object(tails._TailSlice, "_save", save),
    ):
        reader.read()
    check_rows(expected)


@pytest.mark.parametrize("broken", [(), (0,), (2, 4)])
def test_a_batch_is_written_while_the_next_one_is_read(
    broker: Broker, expected: offline_replay.ExpectedRows, shared_database: str, broken: Sequence[int]
) -> None:
    Cluster.objects.all().delete()
    reader, numbers, threads = Reader(broker.bootstrap), count(), set()
    real = tails._write_and_yield

    def write(save: Callable[[], object]) -> None:
        threads.add(threading.current_thread())
        if next(numbers) in broken:
            raise OperationalError("this write fails")
        real(save)

    with (
        patch.object(tails, "_MANY_RECORDS", 1),
        patch.object(tails, "_write_and_yield", write),
    ):
        if broken:
            with pytest.raises(OperationalError, match="this write fails"):
                reader.read()
        # The second failure is in the same read where both writes waited, else in this one.
        with suppress(OperationalError):
            reader.read()
        reader.read(warm=True)
    others = threads - {threading.current_thread()}
    assert others, "the first way to the end has a thread for its writes"
    assert not any(thread.is_alive() for thread in others)
    check_rows(expected)
