"""A witness of `__transaction_state`: a plain consumer that keeps every record before compaction takes it."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.kafka.topic_records import TOPIC, RawRecord
from tests.waiting import wait_for

_SETTINGS = {
    "group.id": "witness", "enable.auto.commit": False, "auto.offset.reset": "error",
    "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2_000,
}  # fmt: skip


class Recorder:
    """All records of the topic, which must exist and be whole when this is entered."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        #: By partition; a record's place is its offset.
        self._records: defaultdict[int, list[RawRecord]] = defaultdict(list)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._wrong = ""

    def __enter__(self) -> Self:
        where = {"bootstrap.servers": self._bootstrap, "log_level": 0}
        self._consumer = Consumer({**_SETTINGS, **where})
        numbers = self._consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        self._partitions = [TopicPartition(TOPIC, number, 0) for number in numbers]
        self._consumer.assign(self._partitions)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def wait_for_ends(self) -> dict[int, int]:
        """Return the end of each partition now, as soon as brokers can tell."""
        ends = wait_for(self._ends, "the log's ends", 120, until=lambda found: isinstance(found, dict))
        assert isinstance(ends, dict)
        return ends

    def _ends(self) -> dict[int, int] | KafkaException:
        wanted = {where: OffsetSpec.latest() for where in self._partitions}
        # A new client each time: one that outlives its leaders keeps asking with their epochs.
        client = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        answers = client.list_offsets(wanted, request_timeout=5)
        try:
            return {where.partition: answer.result(10).offset for where, answer in answers.items()}
        except KafkaException as error:
            return error

    def before(self, ends: Mapping[int, int]) -> list[RawRecord] | None:
        """Return every record before these offsets; None while some are not read yet."""
        assert not self._wrong, self._wrong
        if any(len(self._records[number]) < end for number, end in ends.items()):
            return None
        return [record for number, end in ends.items() for record in self._records[number][:end]]

    def _read(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(1_000, 0.2):
                if error := message.error():
                    self._note(error)
                    continue
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if offset != len(self._records[number]):
                    self._wrong = f"the witness read {number}@{offset} after {len(self._records[number])}"
                record = RawRecord(number, offset, message.timestamp()[1], message.key(), message.value())
                self._records[number].append(record)

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._wrong = f"the witness lost its place: {error}"
