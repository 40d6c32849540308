"""Ask the coordinators of groups, or of transactional ids, about them: many ids per request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from fenceline.compat import zip_equal
from fenceline.grouping import grouped
from transaction_admin.connection import AdminConnection, split_ids


class CoordinatorAnswer(NamedTuple):
    """A coordinator's answer about some wire ids; a KafkaError without one."""

    ids: list[str]
    broker: int
    answer: Any


class CoordinatorQuestions:
    """The coordinators of one kind of ids; `most` ids are in one request."""

    def __init__(self, connection: AdminConnection, kind: CoordinatorType, most: int) -> None:
        self._connection, self._kind, self._most = connection, kind.value, most

    async def find(self, ids: Collection[str]) -> list[Any]:
        """Return a row for each wire id: its coordinator, or an error code."""
        rows = []
        for portion in split_ids(ids, self._most):
            request = partial(
                FindCoordinatorRequest, key_type=self._kind, coordinator_keys=portion, min_version=4
            )
            rows += (await self._connection.send_to_any(request)).coordinators
        return rows

    async def ask(
        self, ids: Collection[str], request_of: Callable[[list[str]], Any]
    ) -> tuple[list[CoordinatorAnswer], list[tuple[str, int]]]:
        """Return the coordinators' answers, and each id without a coordinator with its error code."""
        rows = await self.find(ids)
        by_broker = grouped((row.node_id, row.key) for row in rows if not row.error_code)
        asked = [(part, broker) for broker, own in by_broker.items() for part in split_ids(own, self._most)]
        answers = await self._connection.send_each([(request_of(part), broker) for part, broker in asked])
        refused = [(row.key, row.error_code) for row in rows if row.error_code]
        return [CoordinatorAnswer(*of, answer) for of, answer in zip_equal(asked, answers)], refused
