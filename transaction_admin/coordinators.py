"""Ask coordinators about groups or transactional ids, many ids per request; and which id has a producer id,
so that "none" means none.

A broker that has just become a coordinator, and has not yet begun to load its part of the topic, lists no id
and no error. So every partition of `__transaction_state` is asked for an unused id before and after the list:
a coordinator that has loaded the partition answers that it does not know the id, others answer another error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from fenceline.compat import zip_equal
from fenceline.grouping import grouped
from fenceline.kafka.coordinator import partition_for
from transaction_admin.api import TRANSACTION_STATE, AdminUnavailable
from transaction_admin.connection import AdminConnection, error_name, explain_error, split_ids, text_form

#: Answers of a coordinator that has loaded its part, about an unused id. A missing right is reported before
#: the look-up: then ids may be hidden from us anyway.
_LOADED = (errors.TransactionalIdNotFoundError, errors.TransactionalIdAuthorizationFailedError)


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
    ) -> tuple[list[tuple[list[str], int, Any]], list[tuple[str, int]]]:
        """Return the coordinators' answers, and each id without a coordinator with its error code.

        An answer: the wire ids, the broker, and its response, a KafkaError without one.
        """
        rows = await self.find(ids)
        by_broker = grouped((row.node_id, row.key) for row in rows if not row.error_code)
        asked = [(part, broker) for broker, own in by_broker.items() for part in split_ids(own, self._most)]
        answers = await self._connection.send_each([(request_of(part), broker) for part, broker in asked])
        refused = [(row.key, row.error_code) for row in rows if row.error_code]
        return [(*of, answer) for of, answer in zip_equal(asked, answers)], refused


class OwnerQuestions:
    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._nobody: dict[int, str] = {}

    async def find_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        """Return the escaped ids of these producer ids; raise `AdminUnavailable` if one may be missing."""
        if not producer_ids:
            return {}
        brokers, before = await self._coordinators()
        await self._prove_loaded(before)
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
        answers = await self._connection.send_each([(request, broker) for broker in brokers])
        found = {
            row.producer_id: text_form(row.transactional_id)
            for broker, answer in zip_equal(brokers, answers)
            for row in self._rows(broker, answer)
        }
        _, after = await self._coordinators()
        if after != before:
            raise AdminUnavailable("coordinators changed while they were asked whose a producer id is")
        await self._prove_loaded(after)
        return found

    async def _coordinators(self) -> tuple[list[int], Mapping[int, tuple[int, int]]]:
        """Return brokers, and leader and epoch by partition of the topic; none if it may not be seen."""
        topic = MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE)
        cluster = await self._connection.send_to_any(
            lambda: MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        )
        await self._connection.learn_brokers(cluster)
        leaders = {
            partition.partition_index: (partition.leader_id, partition.leader_epoch)
            for partition in cluster.topics[0].partitions
        }
        leaderless = [number for number, (leader, _) in leaders.items() if leader < 0]
        if leaderless:
            raise AdminUnavailable(f"{TRANSACTION_STATE}-{leaderless[0]} has no leader")
        return sorted(broker.node_id for broker in cluster.brokers), leaders

    async def _prove_loaded(self, leaders: Mapping[int, tuple[int, int]]) -> None:
        by_broker = grouped(
            (leader, self._nobody_of(number, len(leaders))) for number, (leader, _) in leaders.items()
        )
        questions = [
            (DescribeTransactionsRequest(transactional_ids=ids), broker) for broker, ids in by_broker.items()
        ]
        for (_, broker), answer in zip_equal(questions, await self._connection.send_each(questions)):
            if isinstance(answer, errors.KafkaError):
                raise AdminUnavailable(f"broker {broker}: {explain_error(answer)}")
            for row in answer.transaction_states:
                error = errors.for_code(row.error_code)
                # This id may exist.
                if error not in (*_LOADED, errors.NoError):
                    raise AdminUnavailable(f"coordinator {broker} answers {error_name(error)}")

    def _nobody_of(self, partition: int, partitions: int) -> str:
        """Return an unused id of that partition."""
        if len(self._nobody) != partitions:
            self._nobody = dict(_one_of_each(partitions))
        return self._nobody[partition]

    def _rows(self, broker: int, answer: Any) -> Any:
        if isinstance(answer, errors.KafkaError):
            raise AdminUnavailable(f"broker {broker}: {explain_error(answer)}")
        error = errors.for_code(answer.error_code)
        if error is not errors.NoError:
            raise AdminUnavailable(f"broker {broker} answers {error_name(error)}")
        return answer.transaction_states


def _one_of_each(partitions: int) -> Iterator[tuple[int, str]]:
    found: set[int] = set()
    for number in count():
        name = f"fenceline-nobody-{number}"
        where = partition_for(name.encode(), partitions)
        if where not in found:
            found.add(where)
            yield where, name
        if len(found) == partitions:
            return
