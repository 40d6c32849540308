"""Transactions at a steady rate, as a process: `python -m benchmarks.load BOOTSTRAP IDS RATE SECONDS`.

Prints `producing` once every id is initialised, and at the end its actual rate.
"""

import sys
import threading
import time

from confluent_kafka import Producer

TOPIC = "load"


def main(bootstrap: str, ids: int, rate: float, seconds: float) -> None:
    """Commit small transactions over `ids` ids, each paced at its share of `rate` transactions a second."""
    done = [0] * ids
    producers = [make_producer(bootstrap, f"load-{n}") for n in range(ids)]
    print("producing", flush=True)
    began = time.monotonic()
    threads = [
        threading.Thread(target=_pace, args=(producers[n], done, n, ids / rate, began + seconds))
        for n in range(ids)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(done) / (time.monotonic() - began), flush=True)


def make_producer(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    return producer


def _pace(producer: Producer, done: list[int], number: int, period: float, end: float) -> None:
    due = time.monotonic() + period * number / len(done)
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        producer.begin_transaction()
        producer.produce(TOPIC, b"x")
        producer.commit_transaction(60)
        done[number] += 1
        due += period


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
