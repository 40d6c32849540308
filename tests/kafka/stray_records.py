"""Records of transactions unknown to every coordinator, as a late request writes them.

Brokers take them while `transaction.partition.verification.enable` is off (docs/design/kafka.md §0); before
3.6 all did.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from dashboard.runtime import loop
from sandbox.kafka import Broker
from sandbox.scenes import wire
from sandbox.scenes.hanging import VERIFIED, verification_off
from sandbox.scenes.wire import CoordinatorConnection, CoordinatorRefused, Identity
from tests.waiting import wait_for

#: ProduceRequest that is not of transaction protocol 2, where the broker would ask the coordinator itself.
_PRODUCE = 11
_ALL_IN_SYNC = -1


@contextmanager
def verification_disabled(broker: Broker) -> Iterator[None]:
    """Turn off a broker's verification of transactions for as long as this lasts."""
    with verification_off(AdminClient({"bootstrap.servers": broker.bootstrap}), broker.node_id):
        yield


def identity_of(broker: Broker, transactional_id: str, timeout_ms: int = 60_000) -> Identity:
    """Initialise an id; return its producer id and epoch."""
    with CoordinatorConnection(broker.bootstrap, transactional_id) as coordinator:
        return coordinator.init_producer_id(timeout_ms=timeout_ms)


def write_stray_records(
    broker: Broker,
    transactional_id: str,
    identity: Identity,
    where: tuple[str, int],
    *,
    sequence: int = 0,
    stamped_ms: int | None = None,
    records: int = 1,
) -> int:
    """Write records of a transaction unknown to every coordinator; return the first one's offset.

    `stamped_ms` is the producer's clock. Call it under `verification_disabled`.
    """

    def taken() -> list[int]:
        try:
            with wire.Connection(broker.bootstrap) as leader:
                return [_produce(leader, transactional_id, identity, where, sequence, stamped_ms, records)]
        except CoordinatorRefused as refused:
            # The broker may need a moment until it no longer verifies.
            if refused.code not in VERIFIED:
                raise
        return []

    return wait_for(taken, f"{where} takes a stray of {transactional_id}")[0]


def _produce(
    leader: wire.Connection,
    transactional_id: str,
    identity: Identity,
    where: tuple[str, int],
    sequence: int,
    stamped_ms: int | None,
    records: int,
) -> int:
    builder = DefaultRecordBatchBuilder(
        2, 0, True, identity.producer_id, identity.epoch, sequence, 1_000 + 100 * records
    )
    for number in range(records):
        builder.append(number, loop.now_ms() if stamped_ms is None else stamped_ms, None, b"stray", [])
    topic, partition = where
    of_topic = ProduceRequest.TopicProduceData
    data = of_topic.PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_IN_SYNC,
        timeout_ms=10_000,
        topic_data=[of_topic(name=topic, partition_data=[data])],
    )
    (answer,) = leader.send_request(request, ProduceResponse, _PRODUCE).responses[0].partition_responses
    if answer.error_code:
        raise CoordinatorRefused("Produce", answer.error_code)
    return int(answer.base_offset)
