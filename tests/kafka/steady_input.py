"""Records that come all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def steady_input(bootstrap: str, topic: str) -> Iterator[None]:
    """Write records to a topic for as long as it takes."""
    stop, producer = threading.Event(), Producer({"bootstrap.servers": bootstrap})

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            producer.produce(topic, key=str(number % 50), value="x")
            producer.poll(0)
            number += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(30)
