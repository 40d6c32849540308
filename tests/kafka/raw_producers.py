"""A producer that uses the old transaction protocol request by request, to do what no library does."""

import time
from collections.abc import Mapping
from typing import Any

from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)

from sandbox.scenes.wire import (
    CONCURRENT_TRANSACTIONS,
    NOBODY,
    Connection,
    CoordinatorConnection,
    CoordinatorRefused,
    Identity,
    produce_records,
)
from tests.kafka.producers import DEADLINE_S

#: The newest versions of a client that does not speak transaction protocol 2.
_ADD, _END = 3, 4
#: The first version of one that does; its answer holds the next epoch.
_END_2, _PRODUCE_2 = 5, 12
#: UNKNOWN_TOPIC_OR_PARTITION and NOT_LEADER_OR_FOLLOWER, of a topic that was just created.
_NO_LEADER_YET = (3, 6)
#: What franz-go waits after CONCURRENT_TRANSACTIONS.
_FRANZ_GO_RETRY_S = 0.02


class RawProducer:
    """A TransactionalProducer that adds partitions and writes nothing to them.

    With an `identity` it is a stranger to the session that another producer has opened under it.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, identity: Identity = NOBODY
    ) -> None:
        self.identity = identity
        self._coordinator = CoordinatorConnection(bootstrap, transactional_id)
        self._timeout_ms = timeout_ms

    def init(self) -> None:
        """InitProducerId without an identity, until it is answered: takes the id over."""
        self.identity = self._coordinator.init_producer_id(NOBODY, self._timeout_ms)

    def init_as_franz_go(self) -> None:
        """InitProducerId without an identity, retried as soon as franz-go does."""
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.init_once()
            except CoordinatorRefused as refused:
                if refused.code != CONCURRENT_TRANSACTIONS or time.monotonic() > until:
                    raise
            time.sleep(_FRANZ_GO_RETRY_S)

    def init_once(self) -> None:
        """InitProducerId without an identity, sent once and never repeated. Raises Refused."""
        self.identity = self._coordinator.init_once(NOBODY, self._timeout_ms)

    def recover(self) -> None:
        """InitProducerId with its own identity: KIP-360's bump of its own epoch."""
        self.identity = self._coordinator.init_producer_id(self.identity, self._timeout_ms)

    def begin(self) -> None:
        """Nothing: a transaction begins with its first partition."""

    def send(self, topic: str, partition: int, value: str = "x") -> None:
        """AddPartitionsToTxn."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._coordinator.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])
            ],
        )
        self._send_until_answered(request, AddPartitionsToTxnResponse, _ADD)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Refuse: no life here needs a raw producer that adds offsets."""
        raise AssertionError("a raw producer adds no offsets")

    def flush(self) -> None:
        """Nothing: each request has been answered."""

    def commit(self) -> None:
        """EndTxn, as a client that does not speak protocol 2."""
        self._end(committed=True)

    def abort(self) -> None:
        """EndTxn, as a client that does not speak protocol 2."""
        self._end(committed=False)

    def abort_nothing(self) -> None:
        """EndTxn with nothing added, as a client of protocol 2: the coordinator writes an abort."""
        self.identity = self._end(committed=False, version=_END_2)

    def abandon(self) -> None:
        """Close the connection without a request to the coordinator."""
        self._coordinator.__exit__(None, None, None)

    def _end(self, *, committed: bool, version: int = _END) -> Identity:
        request = EndTxnRequest(
            transactional_id=self._coordinator.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=committed,
        )
        found = self._send_until_answered(request, EndTxnResponse, version)
        return Identity(found.producer_id, found.producer_epoch)

    def _send_until_answered(self, request: Any, answer: Any, version: int) -> Any:
        """Ask again while the markers of the transaction before are written. Raises Refused."""
        until = time.monotonic() + DEADLINE_S
        while True:
            found = self._coordinator.send_request(request, answer, version)
            codes = [found.error_code] if answer is EndTxnResponse else _codes(found)
            if set(codes) == {0}:
                return found
            if CONCURRENT_TRANSACTIONS not in codes or time.monotonic() > until:
                raise CoordinatorRefused(type(request).__name__, max(codes))


class RawProducer2(RawProducer):
    """The same in transaction version 2, one record per transaction; its broker leads every partition."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__(bootstrap, transactional_id, timeout_ms)
        self._leader = Connection(bootstrap)

    def send(self, topic: str, partition: int, value: str = "x") -> None:
        """Produce, which adds the partition."""
        where, name = (topic, partition), self._coordinator.transactional_id
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                produce_records(
                    self._leader, name, self.identity, where, [value.encode()], version=_PRODUCE_2
                )
                return
            except CoordinatorRefused as refused:
                if refused.code not in (CONCURRENT_TRANSACTIONS, *_NO_LEADER_YET) or time.monotonic() > until:
                    raise
            time.sleep(_FRANZ_GO_RETRY_S)

    def commit(self) -> None:
        """EndTxn, whose answer has the next epoch."""
        self.identity = self._end(committed=True, version=_END_2)

    def abort(self) -> None:
        """The same for an abort."""
        self.identity = self._end(committed=False, version=_END_2)

    def abandon(self) -> None:
        """Close both connections."""
        self._leader.__exit__(None, None, None)
        super().abandon()


def _codes(found: Any) -> list[int]:
    return [
        partition.partition_error_code
        for topic in found.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
