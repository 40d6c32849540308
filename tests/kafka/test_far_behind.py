"""Proves that a tail far behind keeps what a replay of the log keeps, wherever slices end and saves fail."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka import Producer

from dashboard.tasks import tail_loop
from sandbox.kafka import Broker
from tests.kafka.test_strange_records import Reader, check_against_replay
from tests.kafka.topic_records import TOPIC, raw_records
from tests.kafka.transactional_ids import initialise_ids
from tests.unit.test_aggregate import stream_of

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

PARTITIONS, STEPS = 4, 2_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker whose log holds random histories in each partition."""
    with Broker(tmp_path, properties={"transaction.state.log.num.partitions": str(PARTITIONS)}) as broker:
        initialise_ids(broker.bootstrap, ["first"])
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "__admin_client"})
        for number in range(PARTITIONS):
            for key, raw in stream_of(number, ids=300, steps=STEPS):
                name = key[4:] + f"-{number}".encode()
                own = key[:2] + len(name).to_bytes(2, "big") + name
                producer.produce(TOPIC, raw.value, own, number)
            producer.flush(30)
        yield broker


def test_what_is_polled_and_not_saved_is_read_again(broker: Broker) -> None:
    reader, dice = Reader(broker.bootstrap), random.Random(4)
    real = tail_loop._TailSlice._save

    def save(self: tail_loop._TailSlice, *arguments: object) -> None:
        if dice.random() < 0.3:
            raise tail_loop.CannotSee("this save fails")
        # The slice is over behind it, more often than not.
        self._end = min(self._end, time.monotonic() + dice.random() * 0.1)
        real(self, *arguments)  # type: ignore[arg-type]

    with (
        patch("collectors.kafka.internal_topics._FAR_BEHIND", 50),
        patch("collectors.kafka.internal_topics._FOLD_BYTES", 30_000),
        patch("transaction_admin.log_reader._MOST_BYTES", 30_000),
        patch.object(tail_loop, "RETRY_S", 0.01),
        patch.object(tail_loop._TailSlice, "_save", save),
    ):
        reader.read()
    check_against_replay(list(raw_records(broker.bootstrap)))
