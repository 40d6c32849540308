"""A process to be killed: `python -m tests.kafka.killed_producer BOOTSTRAP ID TOPIC TIMEOUT_MS PARTITION`.

It opens a transaction, prints a line, and waits to be killed.
"""

import signal
import subprocess
import sys

from tests.kafka.producers import LibrdkafkaProducer


def kill_in_mid_transaction(
    bootstrap: str, transactional_id: str, topic: str, timeout_ms: int, partition: int = 0
) -> None:
    """Run one until its transaction is open, and end it with SIGKILL."""
    command = [
        sys.executable, "-m", "tests.kafka.killed_producer", bootstrap, transactional_id, topic,
        str(timeout_ms), str(partition),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        process.kill()
    assert line == "open\n", f"the process printed {line!r}"


def main(bootstrap: str, transactional_id: str, topic: str, timeout_ms: str, partition: str) -> None:
    """Be the victim."""
    producer = LibrdkafkaProducer(bootstrap, transactional_id, {"transaction.timeout.ms": timeout_ms})
    producer.init()
    producer.begin()
    producer.send(topic, int(partition))
    producer.flush()
    print("open", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
