"""A steady stream of records."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from sandbox import clients

ANY_PARTITION = -1
_VALUE = b'{"demo": true}'


@contextmanager
def steady_input(bootstrap: str, topic: str, *partitions: int) -> Iterator[None]:
    """Write records to a topic, or to some of its partitions, while the context is open."""
    stop, producer = threading.Event(), Producer(clients.client_settings(bootstrap, "demo-input"))

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            partition = partitions[number % len(partitions)] if partitions else ANY_PARTITION
            producer.produce(topic, key=str(number % 50), value=_VALUE, partition=partition)
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
