"""List, describe, end and fence transactions, and write markers, by kafka-python.

A silent broker, and an unknown or forbidden id, are parts of the answer and never exceptions: the caller must
know the missing parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import CoordinatorType, MetadataRequest

from fenceline.compat import zip_equal
from fenceline.facts import TopicPartitions, TransactionState
from fenceline.formatting import count_noun
from fenceline.kafka.reconcile import Described, Listed, NotDescribed, Obstacle
from fenceline.kafka.scope import EVERYTHING, Scope
from transaction_admin.api import (
    TRANSACTION_STATE,
    Cost,
    Ended,
    Ending,
    Fencing,
    Marker,
    TransactionListing,
    Unseen,
    describe_grant,
    grant_command,
)
from transaction_admin.connection import AdminConnection, error_name, explain_error, text_form, wire_form
from transaction_admin.coordinators import CoordinatorQuestions
from transaction_admin.end_txn import Endings, write_abort_marker

#: Maximum ids per request.
_MOST_IDS = 1_000
_STATES = {state.value: state for state in TransactionState}
_NO_TOPIC = NotDescribed(
    Obstacle.UNKNOWN, f"no transaction was ever begun on this cluster: it has no {TRANSACTION_STATE}"
)
_OUTSIDE = NotDescribed(Obstacle.FORBIDDEN, "it is outside the configured scope")
_NO_ANSWER = NotDescribed(Obstacle.UNSEEN, "its coordinator left it out of its answer")
_UNKNOWN = NotDescribed(Obstacle.UNKNOWN, "its coordinator does not know this transactional id")
_LOADING = "it is still loading its part of __transaction_state; it will answer soon"


class TransactionAdmin:
    """The admin side of one cluster. `properties` are librdkafka's; calls wait up to `timeout_s`.

    Raises `CannotTranslate` for a property without an equivalent in kafka-python. Every method raises
    `AdminUnavailable` if the cluster cannot be reached.
    """

    def __init__(
        self, properties: Mapping[str, str], timeout_s: float = 10.0, scope: Scope = EVERYTHING
    ) -> None:
        """Ids outside `scope` are neither listed nor described."""
        self._scope = scope
        self._connection = AdminConnection(properties, timeout_s)
        #: Whether a look-up of a coordinator certainly does not create `__transaction_state`.
        self._topic_seen = False
        self._coordinators = CoordinatorQuestions(self._connection, CoordinatorType.TRANSACTION, _MOST_IDS)
        self._endings = Endings(self._connection, self._find)

    @property
    def cost(self) -> Cost:
        return self._connection.cost

    @property
    def principal(self) -> str:
        """Our principal at the brokers, for `grant_command`."""
        return self._connection.principal

    def close(self) -> None:
        self._connection.close()

    def list_transactions(self, states: Collection[TransactionState] = ()) -> TransactionListing:
        """Return the ids in one of `states`, by default all. O(ids) on each broker, unpaged."""
        return self._connection.run(self._list, states)

    def describe_transactions(
        self, transactional_ids: Collection[str], *, listed: bool = False
    ) -> Mapping[str, Described | NotDescribed]:
        """Return the coordinators' reports of these ids (escaped text), one for each id.

        Never creates anything: while `__transaction_state` does not exist, every id is unknown. Without the
        right to see the topic, it looks up only ids that a coordinator has `listed`.
        """
        self._topic_seen = self._topic_seen or listed
        inside = [name for name in transactional_ids if self._scope.has_id(name)]
        described = self._connection.run(self._describe, inside) if inside else {}
        return {name: described.get(name, _OUTSIDE) for name in transactional_ids}

    def end_transactions(self, endings: Collection[Ending], *, timeout_s: float) -> Mapping[str, Ended]:
        """End transactions, all at once; return their coordinators' answers by id.

        Temporary refusals and missing answers are repeated until `timeout_s`: the same end twice is no error.
        **Never call it for a transaction whose outcome another process may decide.**
        """
        return self._connection.run(self._endings.end_all, endings, timeout_s)

    def fence_producers(self, fencings: Collection[Fencing], *, timeout_s: float) -> Mapping[str, Ended]:
        """Initialise ids anew, as Kafka's `forceTerminateTransaction` does; return the answers by id.

        It aborts an id's open transaction and fences its producer (InitProducerId without a producer id, key
        22). It repeats the request until `timeout_s` while the coordinator answers CONCURRENT_TRANSACTIONS,
        the first answer for an open transaction. It never repeats an unanswered request: another producer may
        have begun in between. **Only for ids that the coordinator knows**: it would create others.
        """
        return self._connection.run(self._endings.end_all, fencings, timeout_s)

    def write_abort_marker(self, marker: Marker, *, leader: int) -> Ended:
        """Write an abort marker into one partition through its leader (WriteTxnMarkers, key 27), with one
        request.

        The leader checks little: it also accepts a marker for an ended transaction, and appends it uselessly.
        **Only for transactions without a coordinator**, checked right before: a coordinator would not learn
        of the marker, and could still commit the rest.
        """
        return self._connection.run(write_abort_marker, self._connection, marker, leader)

    async def _find(self, ids: Collection[str]) -> Mapping[str, tuple[int, int]]:
        """Return for each wire id an error code, or 0 and its coordinator."""
        # The caller has seen the transaction: without the right to see the topic, the look-up is still safe.
        if await self._look_up_refused() is _NO_TOPIC:
            return dict.fromkeys(ids, (errors.TransactionalIdNotFoundError.errno, -1))
        return {row.key: (row.error_code, row.node_id) for row in await self._coordinators.find(ids)}

    async def _list(self, states: Collection[TransactionState]) -> TransactionListing:
        cluster = await self._survey()
        unseen = list(_leaderless(cluster))
        entries: dict[str, Listed] = {}
        words = [state.value for state in states]
        # Brokers before Kafka 4.1 know no pattern, send all ids, and log each id that we may not describe.
        request = partial(
            ListTransactionsRequest,
            state_filters=words,
            producer_id_filters=[],
            transactional_id_pattern=self._scope.id_pattern,
        )
        questions = [(request(), broker.node_id) for broker in cluster.brokers]
        for broker, answer in zip_equal(cluster.brokers, await self._connection.send_each(questions)):
            name = f"broker {broker.node_id} at {broker.host}:{broker.port}"
            unseen.extend(Unseen(name, reason) for reason in _collect(answer, entries))
        self._topic_seen = self._topic_seen or bool(entries)
        inside = {name: listed for name, listed in entries.items() if self._scope.has_id(name)}
        return TransactionListing(inside, tuple(unseen), self._may_hide())

    async def _describe(self, names: Collection[str]) -> Mapping[str, Described | NotDescribed]:
        refusal = await self._look_up_refused()
        if refusal is not None:
            return dict.fromkeys(names, refusal)
        by_wire = {wire_form(name): name for name in names}
        received, refusals = await self._coordinators.ask(
            by_wire, lambda ids: DescribeTransactionsRequest(transactional_ids=ids)
        )
        answers: dict[str, Described | NotDescribed] = {
            by_wire[wire]: self._refusal(code, by_wire[wire]) for wire, code in refusals
        }
        for ids, broker, answer in received:
            if isinstance(answer, errors.KafkaError):
                reason = f"its coordinator, broker {broker}: {explain_error(answer)}"
                answers.update((by_wire[wire], NotDescribed(Obstacle.UNSEEN, reason)) for wire in ids)
                continue
            for row in answer.transaction_states:
                name = by_wire[row.transactional_id]
                answers[name] = (
                    self._refusal(row.error_code, name) if row.error_code else _described(name, row)
                )
        # Two names with invalid UTF-8 may be equal on the wire: Kafka takes them for one, too.
        return {name: answers.get(by_wire[wire_form(name)], _NO_ANSWER) for name in names}

    async def _survey(self) -> Any:
        """Return the cluster's metadata: its brokers, and `__transaction_state` if we may see it."""
        cluster = await self._connection.send_to_any(_metadata_request)
        await self._connection.learn_brokers(cluster)
        if _topic_error(cluster) is errors.NoError:
            self._topic_seen = True
        return cluster

    async def _look_up_refused(self) -> NotDescribed | None:
        """Return why no coordinator may be looked up: FindCoordinator would create an absent topic."""
        if self._topic_seen:
            return None
        error = _topic_error(await self._survey())
        if self._topic_seen:
            return None
        if error is errors.UnknownTopicOrPartitionError:
            return await self._without_topic()
        remedy = grant_command(self._connection.principal, "DESCRIBE", f"--topic {TRANSACTION_STATE}")
        reason = (
            f"it cannot be seen whether {TRANSACTION_STATE} exists, and a look-up could create it: {remedy}"
        )
        return NotDescribed(Obstacle.UNSEEN, reason)

    async def _without_topic(self) -> NotDescribed | None:
        """Return why no coordinator may be looked up while brokers report that the topic does not exist.

        Some brokers have no such topic and still coordinate: then they list ids. A broker that does not list
        proves nothing.
        """
        listing = await self._list(())
        if self._topic_seen:
            return None
        if listing.unseen:
            return NotDescribed(Obstacle.UNSEEN, f"no {TRANSACTION_STATE} and no list: {listing.unseen[0]}")
        return _NO_TOPIC

    def _refusal(self, code: int, name: str) -> NotDescribed:
        error = errors.for_code(code)
        if error is errors.TransactionalIdNotFoundError:
            return _UNKNOWN
        if issubclass(error, errors.AuthorizationError):
            remedy = describe_grant(self._connection.principal, f"'{name}'")
            reason = f"no DESCRIBE on this transactional id; grant it: {remedy}"
            return NotDescribed(Obstacle.FORBIDDEN, reason)
        return NotDescribed(Obstacle.UNSEEN, f"its coordinator answers {error_name(error)}")

    def _may_hide(self) -> str:
        return (
            "Brokers leave out transactional ids that this principal may not DESCRIBE, without an error. "
            f"To be sure of all: {describe_grant(self._connection.principal)}"
        )


def _metadata_request() -> Any:
    topic = MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False)


def _topic_error(cluster: Any) -> Any:
    return errors.for_code(cluster.topics[0].error_code)


def _leaderless(cluster: Any) -> Iterator[Unseen]:
    """Yield the partitions whose ids no broker lists now; none without the right to see the topic."""
    brokers = {broker.node_id for broker in cluster.brokers}
    for partition in cluster.topics[0].partitions:
        if partition.leader_id not in brokers:
            where = f"{TRANSACTION_STATE}-{partition.partition_index}"
            yield Unseen(where, "it has no leader: nobody coordinates its transactional ids")


def _collect(answer: Any, entries: dict[str, Listed]) -> Iterator[str]:
    """Add a broker's list to `entries`; yield its missing parts, in words."""
    if isinstance(answer, errors.KafkaError):
        yield explain_error(answer)
        return
    error = errors.for_code(answer.error_code)
    if error is not errors.NoError:
        yield (
            _LOADING if error is errors.CoordinatorLoadInProgressError else f"it answers {error_name(error)}"
        )
        return
    strange: Counter[str] = Counter()
    # There may be millions of them: free each after reading it.
    rows = answer.transaction_states
    while rows:
        row = rows.pop()
        state = _STATES.get(row.transaction_state)
        if state is None:
            strange[row.transaction_state] += 1
        else:
            entries[text_form(row.transactional_id)] = Listed(state, row.producer_id)
    for word, number in strange.items():
        yield f"{count_noun(number, 'id')} in state {word}, which Fenceline does not know"


def _described(name: str, row: Any) -> Described | NotDescribed:
    state = _STATES.get(row.transaction_state)
    if state is None:
        word = row.transaction_state
        return NotDescribed(Obstacle.UNSEEN, f"it is in state {word}, which Fenceline does not know")
    return Described(
        name,
        state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        tuple(TopicPartitions(topic.topic, tuple(sorted(topic.partitions))) for topic in row.topics),
    )
