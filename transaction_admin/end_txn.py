"""EndTxn and InitProducerId for another process's transactions, repeated until they are answered, and
WriteTxnMarkers, which writes the marker of an abort once, for transactions without a coordinator.

Version 4 at most: from version 5 on a coordinator raises the epoch with each end (KIP-890), and librdkafka's
existing sessions would not know. A repeated end gets the same answer (docs/design/kafka.md §0), so unanswered
ends are repeated. A repeated fencing could fence a new producer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Union

import kafka.errors as errors
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest, WriteTxnMarkersRequest

from fenceline.compat import zip_equal
from transaction_admin.api import Ended, Ending, Fencing, Marker
from transaction_admin.connection import AdminConnection, error_name, explain_error, wire_form

_NEWEST_VERSION = 4
#: The coordinator has moved, or is loading: look it up again.
_MOVED = (
    errors.NotCoordinatorError,
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
)
_AGAIN = (*_MOVED, errors.ConcurrentTransactionsError, errors.RequestTimedOutError)
#: Seconds before a temporary refusal is repeated, doubled up to a second.
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

#: Finds the coordinators of wire ids: the broker or an error, by id.
Find = Callable[[Collection[str]], Any]
Asked = Union[Ending, Fencing]
#: As in Kafka's own abort: the leader then takes the transaction's own epoch, and requires no higher one.
_LEGACY = 0


class Endings:
    """Ends transactions and fences producers; remembers their coordinators."""

    def __init__(self, connection: AdminConnection, find: Find) -> None:
        self._connection, self._find = connection, find
        self._coordinators: dict[str, int] = {}

    async def end_all(self, endings: Collection[Asked], timeout_s: float) -> Mapping[str, Ended]:
        """Return the results by id; after `timeout_s` a temporary refusal is the result."""
        until = time.monotonic() + timeout_s
        answers: dict[str, Ended] = {}
        waiting, pause = list(endings), _PAUSE_S
        while True:
            waiting = await self._once(waiting, answers)
            if not waiting or time.monotonic() + pause > until:
                return answers
            await self._connection.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _once(self, endings: Collection[Asked], answers: dict[str, Ended]) -> list[Asked]:
        """Send one request for each; return those to repeat."""
        by_broker, again = await self._located(endings, answers)
        questions = [(_request(ending), broker) for ending, broker in by_broker]
        pairs = zip_equal(by_broker, await self._connection.send_each(questions))
        for (ending, _), answer in pairs:
            ended, retried, moved = _read(ending, answer)
            answers[ending.transactional_id] = ended
            if moved:
                self._coordinators.pop(ending.transactional_id, None)
            if retried:
                again.append(ending)
        return again

    async def _located(
        self, endings: Collection[Asked], answers: dict[str, Ended]
    ) -> tuple[list[tuple[Asked, int]], list[Asked]]:
        """Return transactions with their coordinators, and those that need another look-up."""
        unknown = [ending.transactional_id for ending in endings]
        unknown = [name for name in unknown if name not in self._coordinators]
        later = await self._look_up(unknown, answers) if unknown else set()
        located = [
            (ending, self._coordinators[ending.transactional_id])
            for ending in endings
            if ending.transactional_id in self._coordinators
        ]
        return located, [ending for ending in endings if ending.transactional_id in later]

    async def _look_up(self, names: Collection[str], answers: dict[str, Ended]) -> set[str]:
        """Look up coordinators of ids; put refusals into `answers`, return the ids to retry."""
        by_wire = {wire_form(name): name for name in names}
        try:
            coordinators: Mapping[str, tuple[int, int]] = await self._find(list(by_wire))
        except errors.KafkaError as unreachable:
            answers.update((name, Ended(None, explain_error(unreachable))) for name in names)
            return set(names)
        later = set()
        for wire, (code, broker) in coordinators.items():
            name = by_wire[wire]
            if not code:
                self._coordinators[name] = broker
                continue
            error = errors.for_code(code)
            answers[name] = Ended(code, error_name(error))
            if issubclass(error, _AGAIN):
                later.add(name)
        return later


def _request(asked: Asked) -> Any:
    name = wire_form(asked.transactional_id)
    if isinstance(asked, Fencing):
        return InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=asked.timeout_ms,
            producer_id=asked.producer_id,
            producer_epoch=asked.producer_epoch,
            max_version=_NEWEST_VERSION,
        )
    return EndTxnRequest(
        transactional_id=name,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        committed=asked.commit,
        max_version=_NEWEST_VERSION,
    )


def _read(asked: Asked, answer: Any) -> tuple[Ended, bool, bool]:
    """Return the decoded answer, whether to repeat the request, and whether the coordinator has moved."""
    if isinstance(answer, errors.KafkaError):
        return Ended(None, explain_error(answer)), isinstance(asked, Ending), True
    error = errors.for_code(answer.error_code)
    given: tuple[int, ...] = ()
    if isinstance(asked, Fencing) and error is errors.NoError:
        given = answer.producer_id, answer.producer_epoch
    return (
        Ended(answer.error_code, "" if error is errors.NoError else error_name(error), *given),
        issubclass(error, _AGAIN),
        issubclass(error, _MOVED),
    )


async def write_abort_marker(connection: AdminConnection, marker: Marker, leader: int) -> Ended:
    """Ask one broker, once, to write an abort marker into one partition; return its answer."""
    (answer,) = await connection.send_each([(_marker_request(marker), leader)])
    if isinstance(answer, errors.KafkaError):
        return Ended(None, explain_error(answer))
    # The code of the one partition also holds a refusal of the request.
    code = next(
        int(partition.error_code)
        for written in answer.markers
        for topic in written.topics
        for partition in topic.partitions
        if (topic.name, partition.partition_index) == tuple(marker.partition)
    )
    return Ended(code, error_name(errors.for_code(code)) if code else "")


def _marker_request(marker: Marker) -> Any:
    one = WriteTxnMarkersRequest.WritableTxnMarker
    topic = one.WritableTxnMarkerTopic(
        name=marker.partition.topic, partition_indexes=[marker.partition.partition]
    )
    return WriteTxnMarkersRequest(
        markers=[
            one(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                topics=[topic],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=_LEGACY,
            )
        ]
    )
