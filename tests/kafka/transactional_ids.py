"""Transactional ids by the thousand: initialised by raw requests, since a producer for each is slow."""

import operator
from collections.abc import Iterable
from contextlib import closing

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from tests.waiting import wait_for
from transaction_admin.connection import AdminConnection


def initialise_ids(bootstrap: str, ids: Iterable[str], timeout_ms: int = 60_000) -> None:
    """Give each id a producer id, on a broker that is its cluster's only one."""
    with closing(AdminConnection({"bootstrap.servers": bootstrap}, 30)) as wire:
        left = [*ids]
        wait_for(
            lambda: wire.run(_refused, wire, left, timeout_ms), "ids are initialised", until=operator.not_
        )


async def _refused(connection: AdminConnection, left: list[str], timeout_ms: int) -> list[str]:
    """Initialise ids; keep those that are refused, as by a coordinator that has just been made."""
    kind = CoordinatorType.TRANSACTION.value
    find = FindCoordinatorRequest(key_type=kind, coordinator_keys=left, min_version=4)
    found = (await connection.send_request(find, 1)).coordinators
    places = {each.key: each.node_id for each in found if not each.error_code}
    left[:] = [
        name
        for name in left
        if name not in places or await _is_refused(connection, name, timeout_ms, places[name])
    ]
    return left


async def _is_refused(connection: AdminConnection, name: str, timeout_ms: int, place: int) -> bool:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )
    return bool((await connection.send_request(request, place)).error_code)
