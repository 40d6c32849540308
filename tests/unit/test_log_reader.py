"""Proves how a reader treats leaders that move, hang, are held back or fence it, by answers a test writes."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka import errors

from tests.cases import cases
from transaction_admin import log_reader
from transaction_admin.api import Cost, Unseen
from transaction_admin.connection import AdminConnection
from transaction_admin.log_reader import Fetched, LogReader, OutOfRange
from transaction_admin.sockets import DirectSocket

TOPIC = "__transaction_state"
ONE, OTHER = UUID(int=1), UUID(int=2)


class WrittenConnection:
    """A connection to brokers that a test makes: partition -> leader, and what each has been asked."""

    principal = "User:test"
    cost = Cost(0, 0.0)

    def __init__(self) -> None:
        self.leaders, self.epoch, self.topic_id = {0: 1, 1: 2}, 7, ONE
        self.paused: set[int] = set()
        #: Requests by broker, each with what gets its answer.
        self.asked: list[tuple[int, Any, Callable[[Any], None]]] = []
        self.metadata_requests = 0

    def run(self, question: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        running = question(*arguments).__await__()
        try:
            next(running)
        except StopIteration as end:
            return end.value
        raise AssertionError("nothing here waits")

    async def send_to_any(self, make: Callable[[], Any]) -> Any:
        self.metadata_requests += 1
        replicas = {"replica_nodes": [], "isr_nodes": [], "leader_epoch": self.epoch}
        rows = [
            SimpleNamespace(partition_index=number, leader_id=leader, **replicas)
            for number, leader in self.leaders.items()
        ]
        topic = SimpleNamespace(name=TOPIC, error_code=0, topic_id=self.topic_id, partitions=rows)
        return SimpleNamespace(topics=[topic], brokers=[], controller_id=1)

    async def learn_brokers(self, cluster: Any) -> None:
        pass

    async def send_then(self, request: Any, broker: int, done: Callable[[Any], None]) -> None:
        self.asked.append((broker, request, done))

    def is_held_back(self, broker: int) -> bool:
        return broker in self.paused

    def brokers(self) -> list[int]:
        return [broker for broker, _, _ in self.asked]

    def answer(self, broker: int, *rows: Any) -> None:
        """Answer the first request to a broker with rows, or an error."""
        number = self.brokers().index(broker)
        _, _, done = self.asked.pop(number)
        failed = rows and isinstance(rows[0], Exception)
        done(rows[0] if failed else SimpleNamespace(responses=[SimpleNamespace(partitions=rows)]))


def row(number: int, code: int = 0, records: bytes = b"", diverging: int = -1) -> Any:
    return SimpleNamespace(
        partition_index=number, error_code=code, records=records, high_watermark=9, last_stable_offset=9,
        aborted_transactions=None, diverging_epoch=SimpleNamespace(epoch=0, end_offset=diverging),
    )  # fmt: skip


def partitions_of(request: Any) -> Sequence[Any]:
    partitions: Sequence[Any] = request.topics[0].partitions
    return partitions


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> WrittenConnection:
    made = WrittenConnection()
    monkeypatch.setattr(log_reader, "AdminConnection", lambda *_: made)
    monkeypatch.setattr(log_reader, "_PAUSE_S", 0.0)
    return made


@pytest.fixture
def reader(connection: WrittenConnection) -> LogReader:
    reader = LogReader({"bootstrap.servers": "host:1"}, TOPIC, timeout_s=1)
    reader.describe()
    reader.request({0: 5, 1: 6}, {0: 3})
    return reader


def test_each_leader_is_asked_for_its_own_with_the_epochs(
    connection: WrittenConnection, reader: LogReader
) -> None:
    asked = [
        (broker, each.partition, each.fetch_offset, each.current_leader_epoch, each.last_fetched_epoch)
        for broker, request, _ in connection.asked
        for each in partitions_of(request)
    ]
    assert asked == [(1, 0, 5, 7, 3), (2, 1, 6, 7, -1)]
    reader.request({0: 5, 1: 6}, {})
    assert connection.brokers() == [1, 2], "a request is on its way to each"


def test_a_broker_that_hangs_keeps_no_other_one_waiting(
    connection: WrittenConnection, reader: LogReader
) -> None:
    connection.answer(2, row(1, records=b"x"))
    assert reader.receive(0.0) == {1: Fetched(b"x", 9, 9, [])}
    reader.request({0: 5, 1: 7}, {})
    assert connection.brokers() == [1, 2]


@pytest.mark.parametrize("error", [errors.RequestTimedOutError(), errors.KafkaConnectionError("gone")])
def test_a_broker_that_did_not_answer_is_asked_again(
    connection: WrittenConnection, reader: LogReader, error: Exception
) -> None:
    connection.answer(1, error)
    assert reader.receive(0.0) == {}
    reader.request({0: 5, 1: 6}, {})
    assert connection.brokers() == [2, 1]


@cases(
    errors.NotLeaderForPartitionError.errno,
    errors.FencedLeaderEpochError.errno,
    errors.UnknownLeaderEpochError.errno,
    errors.UnknownTopicOrPartitionError.errno,
)
def test_a_partition_that_moved_is_asked_for_at_its_new_leader(
    connection: WrittenConnection, reader: LogReader, code: int
) -> None:
    connection.leaders, connection.epoch = {0: 2, 1: 2}, 8
    connection.answer(1, row(0, code))
    assert reader.receive(0.0) == {}
    connection.answer(2, row(1))
    assert set(reader.receive(0.0)) == {1}
    reader.request({0: 5, 1: 6}, {})
    ((broker, request, _),) = connection.asked
    assert [broker, *((each.partition, each.current_leader_epoch) for each in partitions_of(request))] == [
        2, (0, 8), (1, 8),
    ]  # fmt: skip


def test_an_answer_to_an_older_question_is_dropped(connection: WrittenConnection, reader: LogReader) -> None:
    """A partition that moved while its old leader held the request, and was read on at the new one."""
    connection.leaders = {0: 2, 1: 2}
    connection.answer(2, row(1, errors.NotLeaderForPartitionError.errno))
    reader.receive(0.0)
    reader.request({0: 5, 1: 6}, {})
    connection.answer(2, row(0, records=b"new"), row(1))
    assert reader.receive(0.0)[0] == Fetched(b"new", 9, 9, [])
    reader.request({0: 8, 1: 6}, {})
    connection.answer(1, row(0, records=b"old"))
    assert reader.receive(0.0) == {}


def test_a_broker_that_a_quota_holds_back_is_not_waited_for(
    connection: WrittenConnection, reader: LogReader
) -> None:
    connection.paused = {1}
    for broker, number in ((1, 0), (2, 1)):
        connection.answer(broker, row(number))
    reader.receive(0.0)
    reader.request({0: 5, 1: 6}, {})
    assert connection.brokers() == [2]
    connection.paused = set()
    reader.request({0: 5, 1: 6}, {})
    assert connection.brokers() == [2, 1]


def test_a_log_that_has_lost_its_end_is_out_of_range_and_a_right_that_was_revoked_is_told(
    connection: WrittenConnection, reader: LogReader
) -> None:
    connection.answer(1, row(0, diverging=4))
    connection.answer(2, row(1, errors.OffsetOutOfRangeError.errno))
    assert reader.receive(0.0) == {0: OutOfRange(), 1: OutOfRange()}
    reader.request({0: 5}, {})
    connection.answer(1, row(0, errors.TopicAuthorizationFailedError.errno))
    (answer,) = reader.receive(0.0).values()
    assert isinstance(answer, Unseen)
    assert "no READ on this topic" in answer.reason


def test_a_topic_that_was_made_again_is_asked_for_no_more(
    connection: WrittenConnection, reader: LogReader
) -> None:
    connection.topic_id = OTHER
    connection.answer(1, row(0, errors.UnknownTopicOrPartitionError.errno))
    reader.receive(0.0)
    reader.request({0: 5, 1: 6}, {})
    assert reader.replaced
    assert connection.brokers() == [2]
    reader.describe()
    assert not reader.replaced


def test_answers_from_before_a_move_to_another_place_are_dropped(
    connection: WrittenConnection, reader: LogReader
) -> None:
    reader.forget_requests()
    connection.answer(1, row(0, records=b"old"))
    assert reader.receive(0.0) == {}
    reader.request({0: 0, 1: 0}, {})
    assert connection.brokers() == [2, 1, 2]


def test_a_question_for_any_broker_names_the_quota_that_holds_back_all() -> None:
    asking = AdminConnection.__new__(AdminConnection)
    parts: Any = asking
    parts._timeout_s, parts._net = 0.0, SimpleNamespace(sleep=asyncio.sleep)
    throttled = SimpleNamespace(paused={"throttle"})
    parts._manager = SimpleNamespace(least_loaded_node=lambda: None, _conns={1: throttled})
    with pytest.raises(errors.ThrottlingQuotaExceededError):
        asyncio.run(asking._any_broker())
    parts._manager = SimpleNamespace(least_loaded_node=lambda: 2, _conns={1: throttled})
    assert asyncio.run(asking._any_broker()) == 2


def test_a_connection_receives_more_at_once_than_kafka_python_asks_for() -> None:
    kind = socket.AF_INET, socket.SOCK_STREAM, 0
    with socket.create_server(("127.0.0.1", 0)) as server, DirectSocket().socket(*kind) as client:
        client.connect(server.getsockname())
        with server.accept()[0] as peer:
            peer.sendall(bytes(50_000))
        sizes = list(iter(lambda: len(client.recv(4096)), 0))
    assert sum(sizes) == 50_000
    assert max(sizes) > 4096
