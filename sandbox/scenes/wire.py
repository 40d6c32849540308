"""Kafka's transaction protocol, request by request, for scenes that no client library can play.

    with CoordinatorConnection(bootstrap, "demo-fence") as coordinator:
        given = coordinator.init_producer_id()                    # as any producer's first request
        for given in coordinator.init_again(1000): ...            # pipelined on one connection
        coordinator.transaction_state()                           # "Empty"
    with Connection(leader) as broker:
        produce(broker, "demo-hanging-0", given, ("demo-hanging", 0), [b"x"])

It uses a plain blocking socket and kafka-python's message classes, only on the sandbox's own Kafka.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, Self

from kafka.protocol.admin.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from sandbox import SandboxError

CONCURRENT_TRANSACTIONS = 51
_NOT_FOUND = 105
#: The coordinator does not exist yet, is loading its partition, or has moved.
_NOT_YET = (14, 15, 16)
#: Versions that 3.9 to 4.3 speak. InitProducerId 4 takes an epoch and answers PRODUCER_FENCED; Produce 11 is
#: the last whose sender adds partitions to a transaction by a request of its own.
_FIND, _INIT, _DESCRIBE, _PRODUCE = 3, 4, 0, 11
_ALL_IN_SYNC = -1
#: FindCoordinator's key type for transactions.
_TRANSACTION = 1
#: Seconds for one answer, and for repeating a request while an abort's markers are written.
_ANSWER_WITHIN_S, _RETRY_FOR_S, _RETRY_EVERY_S = 10.0, 30.0, 0.1
#: Requests in flight: the broker reads the next one after answering the last.
_PIPELINE = 200
_SIZE = struct.Struct(">i")


class Identity(NamedTuple):
    """A producer's identity at the coordinator: its id and epoch."""

    producer_id: int
    epoch: int


#: A producer without an identity, or an administrator's tool.
NOBODY = Identity(-1, -1)


class CoordinatorRefused(SandboxError):
    """The coordinator refused; `code` is Kafka's error code."""

    def __init__(self, request: str, code: int) -> None:
        from kafka.errors import for_code

        self.code = code
        super().__init__(f"{request} was refused: {for_code(code).message}")


class CoordinatorConnection:
    """A connection to the coordinator of one transactional id. Raises SandboxError if it breaks."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        request = FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION)
        with Connection(bootstrap) as broker:
            # The first question creates `__transaction_state`.
            found = _repeated(lambda: broker.send_request(request, FindCoordinatorResponse, _FIND))
        if found.error_code:
            raise CoordinatorRefused("FindCoordinator", found.error_code)
        self.node_id, self.address = found.node_id, f"{found.host}:{found.port}"
        self._connection = Connection(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def send_request(self, request: ApiMessage, answer: type[ApiMessage], version: int) -> Any:
        return self._connection.send_request(request, answer, version)

    def init_producer_id(self, identity: Identity = NOBODY, timeout_ms: int = 60_000) -> Identity:
        """Send InitProducerId, and repeat it on CONCURRENT_TRANSACTIONS as every client does.

        Without an identity it fences the id's producer. With one it asks for that producer's next epoch
        (KIP-360). Raises Refused.
        """
        request = self._init(identity, timeout_ms)
        temporary = (CONCURRENT_TRANSACTIONS, *_NOT_YET)
        return _given(_repeated(lambda: self.send_request(request, InitProducerIdResponse, _INIT), temporary))

    def init_once(self, identity: Identity = NOBODY, timeout_ms: int = 60_000) -> Identity:
        """Send InitProducerId once. Raises Refused."""
        return _given(self.send_request(self._init(identity, timeout_ms), InitProducerIdResponse, _INIT))

    def init_again(self, times: int) -> Iterator[Identity]:
        """Send InitProducerId without an identity repeatedly, as fast as possible. Raises Refused."""
        request = self._init(NOBODY, 60_000)
        for answer in self._connection.send_repeatedly(request, InitProducerIdResponse, _INIT, times):
            yield _given(answer)

    def transaction_state(self) -> str:
        """Return the id's state in Kafka's terms. Raises Refused."""
        return str(self._described().transaction_state)

    def knows_id(self) -> bool:
        """Whether the coordinator knows the id. Raises Refused if it cannot answer."""
        try:
            self._described()
        except CoordinatorRefused as refused:
            if refused.code != _NOT_FOUND:
                raise
            return False
        return True

    def _described(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        state = _repeated(
            lambda: self.send_request(request, DescribeTransactionsResponse, _DESCRIBE).transaction_states[0]
        )
        if state.error_code:
            raise CoordinatorRefused("DescribeTransactions", state.error_code)
        return state

    def _init(self, identity: Identity, timeout_ms: int) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )


def _repeated(ask: Callable[[], Any], temporary: Collection[int] = _NOT_YET) -> Any:
    """Return an answer; one with a temporary error is requested again for a while."""
    until = time.monotonic() + _RETRY_FOR_S
    while (answer := ask()).error_code in temporary and time.monotonic() <= until:
        time.sleep(_RETRY_EVERY_S)
    return answer


def has_open_transaction(bootstrap: str, transactional_id: str) -> bool:
    with CoordinatorConnection(bootstrap, transactional_id) as coordinator:
        return coordinator.knows_id() and coordinator.transaction_state() == "Ongoing"


def _given(answer: Any) -> Identity:
    if answer.error_code:
        raise CoordinatorRefused("InitProducerId", answer.error_code)
    return Identity(answer.producer_id, answer.producer_epoch)


def init_idempotent(broker: Connection) -> Identity:
    """Return the identity of a producer without transactions. Raises Refused."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=-1, producer_id=-1, producer_epoch=-1
    )
    # A new broker has no block of producer ids yet.
    return _given(_repeated(lambda: broker.send_request(request, InitProducerIdResponse, _INIT)))


def produce_records(
    leader: Connection,
    transactional_id: str | None,
    identity: Identity,
    where: tuple[str, int],
    values: Sequence[bytes],
    *,
    version: int = _PRODUCE,
    sequence: int = 0,
) -> int:
    """Write records to a partition, with an id in its transaction; return the first offset.

    It sends no AddPartitionsToTxn before: from version 12 on the broker itself adds the partition (KIP-890);
    with earlier versions the coordinator does not know the partition. Raises Refused.
    """
    size = 1000 + sum(map(len, values))
    is_transactional = transactional_id is not None
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional, identity.producer_id, identity.epoch, sequence, size
    )
    for number, value in enumerate(values):
        builder.append(number, int(time.time() * 1000), None, value, [])
    topic, partition = where
    of_topic = ProduceRequest.TopicProduceData
    data = of_topic.PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_IN_SYNC,
        timeout_ms=int(_ANSWER_WITHIN_S * 1000),
        topic_data=[of_topic(name=topic, partition_data=[data])],
    )
    (answer,) = leader.send_request(request, ProduceResponse, version).responses[0].partition_responses
    if answer.error_code:
        raise CoordinatorRefused("Produce", answer.error_code)
    return int(answer.base_offset)


class Connection:
    """A connection to the first reachable broker of `host:port,host:port`; answers come in the order of
    requests.

    Raises SandboxError if none is reachable.
    """

    def __init__(self, addresses: str) -> None:
        self._socket = _connected(addresses)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def send_request(self, request: ApiMessage, answer: type[ApiMessage], version: int) -> Any:
        return next(self.send_repeatedly(request, answer, version, 1))

    def send_repeatedly(
        self, request: ApiMessage, answer: type[ApiMessage], version: int, times: int
    ) -> Iterator[Any]:
        """Send the same request repeatedly, and yield the answers as they come."""
        request.API_VERSION = version
        # Every copy has the same correlation id: answers come in the order of requests.
        request.with_header(correlation_id=0, client_id="demo-wire")
        frame = request.encode(header=True, framed=True)
        try:
            self._socket.sendall(frame * min(times, _PIPELINE))
            for number in range(times):
                yield answer.decode(self._frame(), version=version, header=True)
                if number + _PIPELINE < times:
                    self._socket.sendall(frame)
        except OSError as error:
            raise SandboxError(f"the connection to Kafka is lost: {error}") from None

    def _frame(self) -> bytes:
        head = self._answers.read(_SIZE.size)
        body = self._answers.read(_SIZE.unpack(head)[0]) if len(head) == _SIZE.size else b""
        if not body:
            raise ConnectionError("closed by the broker")
        return body


def _connected(addresses: str) -> socket.socket:
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            return socket.create_connection((host, int(port)), timeout=_ANSWER_WITHIN_S)
        except OSError as error:
            refused = error
    raise SandboxError(f"no Kafka answers at {addresses}: {refused}")
