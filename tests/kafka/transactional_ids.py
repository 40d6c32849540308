"""Transactional ids by the thousand: initialised by raw requests, since a producer for each is slow."""

from collections.abc import Iterable

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from tests.waiting import wait_for
from transaction_admin.connection import AdminConnection


def initialise_ids(bootstrap: str, ids: Iterable[str], timeout_ms: int = 60_000) -> None:
    """Give each id a producer id, on a broker that is its cluster's only one."""
    wire = AdminConnection({"bootstrap.servers": bootstrap}, 30)
    try:
        for name in ids:
            wait_for(
                lambda name=name: wire.run(_initialised, wire, name, timeout_ms), f"{name} is initialised"
            )
    finally:
        wire.close()


async def _initialised(connection: AdminConnection, name: str, timeout_ms: int) -> bool:
    kind = CoordinatorType.TRANSACTION.value
    find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name], min_version=4)
    (found,) = (await connection.send_request(find, 1)).coordinators
    if found.error_code:
        return False
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )
    return not (await connection.send_request(request, found.node_id)).error_code
