"""Groups from their coordinators, many per request: committed offsets (KIP-709), the progress of share groups
(KIP-932), and the topology and tasks of Kafka Streams groups (KIP-1071).

A share group commits no offsets. Its coordinator keeps the offset before which every record is done, and from
Kafka 4.2 on the number of unfinished records (KIP-1226). kafka-python lacks Kafka's messages for share and
Streams groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import kafka.errors as errors
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType

from fenceline.compat import zip_equal
from fenceline.decode import text
from fenceline.engines.status import StreamsStore, described_stores
from fenceline.facts import TopicPartition
from fenceline.grouping import grouped
from fenceline.kafka.groups import Committed, ShareProgress
from transaction_admin import schemas
from transaction_admin.api import (
    CONSUMER_OFFSETS,
    Commits,
    GroupListed,
    GroupListing,
    ShareProgresses,
    Unseen,
    Unstable,
    grant_command,
)
from transaction_admin.connection import AdminConnection, error_name, explain_error, text_form, wire_form
from transaction_admin.coordinators import CoordinatorQuestions
from transaction_admin.leaders import Leaders

#: Maximum groups per request.
_MOST_GROUPS = 500
#: From version 10 on, topics are named by their ids.
_BY_NAME = 9
_NO_OFFSET = -1
#: Decodes one group of an answer.
_ReadGroup = Callable[[Any], Any]
_LEFT_OUT = Unseen("", "its coordinator left it out of its answer")


class Groups:
    def __init__(self, connection: AdminConnection, leaders: Leaders) -> None:
        self._connection, self._leaders = connection, leaders
        self._coordinators = CoordinatorQuestions(connection, CoordinatorType.GROUP, _MOST_GROUPS)
        #: Whether a look-up of a coordinator certainly does not create `__consumer_offsets`.
        self._topic_seen = False

    async def list_groups(self) -> GroupListing:
        """Return every group that coordinators list to us."""
        brokers = (await self._leaders.refresh_leaders([])).brokers
        request = partial(ListGroupsRequest, states_filter=[], types_filter=[], min_version=4)
        answers = await self._connection.send_each([(request(), broker) for broker in brokers])
        groups: dict[str, GroupListed] = {}
        unseen = []
        for (broker, where), answer in zip_equal(brokers.items(), answers):
            reason = _why_not(answer)
            if reason:
                unseen.append(Unseen(f"broker {broker} at {where}", reason, broker))
            else:
                groups.update(_listed(answer.groups, broker))
        self._topic_seen = self._topic_seen or bool(groups)
        return GroupListing(groups, tuple(unseen))

    async def committed_offsets(
        self,
        names: Collection[str],
        *,
        require_stable: bool,
        named: Mapping[str, Collection[TopicPartition]] | None = None,
    ) -> Mapping[str, Commits | Unseen]:
        """Return the groups' committed offsets; for a group in `named` only those partitions, else all.

        A partition without a stable commit is only returned if it is named.
        """
        refusal = await self._look_up_refused()
        if refusal is not None:
            return dict.fromkeys(names, refusal)
        asked = {wire_form(name): topics for name, topics in (named or {}).items()}
        return await self._ask(
            names,
            lambda ids: _fetch_request(ids, asked, require_stable),
            lambda group: dict(_commits(group.topics)),
        )

    async def share_progress(self, names: Collection[str]) -> Mapping[str, ShareProgresses | Unseen]:
        return await self._ask(names, share_offsets_request, lambda group: dict(read_progress(group.topics)))

    async def streams_stores(self, names: Collection[str]) -> Mapping[str, Sequence[StreamsStore] | Unseen]:
        return await self._ask(names, describe_streams_request, read_stores)

    async def _ask(
        self, names: Collection[str], request_of: Callable[[list[str]], Any], read: _ReadGroup
    ) -> Mapping[str, Any]:
        """Ask each group's coordinator; repeat it once for groups that moved to another one."""
        by_wire = {wire_form(name): name for name in names}
        answers: dict[str, Any] = {}
        left: Collection[str] = by_wire
        for _ in range(2):
            left = await self._ask_once(left, by_wire, request_of, read, answers)
            if not left:
                break
        return {name: answers.get(by_wire[wire_form(name)], _LEFT_OUT) for name in names}

    async def _ask_once(
        self,
        wanted: Collection[str],
        by_wire: Mapping[str, str],
        request_of: Callable[[list[str]], Any],
        read: _ReadGroup,
        answers: dict[str, Any],
    ) -> list[str]:
        """Put coordinators' answers into `answers`; return the groups that have moved."""
        again: list[str] = []
        received, refusals = await self._coordinators.ask(wanted, request_of)
        answers.update((by_wire[wire], self._refusal(code, by_wire[wire])) for wire, code in refusals)
        for ids, broker, answer in received:
            if isinstance(answer, errors.KafkaError):
                reason = f"its coordinator, broker {broker}: {explain_error(answer)}"
                answers.update((by_wire[name], Unseen(by_wire[name], reason)) for name in ids)
                again += ids
                continue
            for group in answer.groups:
                name = by_wire[group.group_id]
                refused = self._refusal(group.error_code, name) if group.error_code else None
                answers[name] = refused or read(group)
                if errors.for_code(group.error_code) is errors.NotCoordinatorError:
                    again.append(group.group_id)
        return again

    async def _look_up_refused(self) -> Unseen | None:
        """Return why coordinator look-ups are not allowed: FindCoordinator would create an absent topic."""
        if not self._topic_seen:
            topology = await self._leaders.refresh_leaders([CONSUMER_OFFSETS])
            self._topic_seen = bool(topology.partitions)
            if not self._topic_seen and not self._leaders.is_forbidden(CONSUMER_OFFSETS):
                return Unseen(
                    CONSUMER_OFFSETS, "brokers say that it does not exist, and a look-up could create it"
                )
        if self._topic_seen:
            return None
        remedy = grant_command(self._connection.principal, "DESCRIBE", f"--topic {CONSUMER_OFFSETS}")
        return Unseen(
            CONSUMER_OFFSETS, f"it cannot be seen whether it exists, and a look-up could create it: {remedy}"
        )

    def _refusal(self, code: int, name: str) -> Unseen:
        error = errors.for_code(code)
        if issubclass(error, errors.AuthorizationError):
            remedy = grant_command(self._connection.principal, "DESCRIBE", f"--group '{name}'")
            return Unseen(name, f"no DESCRIBE on this group; grant it: {remedy}")
        return Unseen(name, f"its coordinator answers {error_name(error)}")


def _fetch_request(ids: list[str], named: Mapping[str, Collection[TopicPartition]], stable: bool) -> Any:
    request_group = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [request_group(group_id=group, topics=_topics(named.get(group))) for group in ids]
    return OffsetFetchRequest(groups=groups, require_stable=stable, min_version=8, max_version=_BY_NAME)


def _topics(partitions: Collection[TopicPartition] | None) -> list[Any] | None:
    if partitions is None:
        return None
    topic_of = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
    return [topic_of(name=topic, partition_indexes=numbers) for topic, numbers in grouped(partitions).items()]


def _why_not(answer: Any) -> str:
    if isinstance(answer, errors.KafkaError):
        return explain_error(answer)
    error = errors.for_code(answer.error_code)
    if error is errors.CoordinatorLoadInProgressError:
        return f"it is still loading its part of {CONSUMER_OFFSETS}; it will answer soon"
    return "" if error is errors.NoError else f"it answers {error_name(error)}"


def _listed(rows: Sequence[Any], broker: int) -> Iterator[tuple[str, GroupListed]]:
    for row in rows:
        kind = (row.group_type or "classic").capitalize()
        yield text_form(row.group_id), GroupListed(row.group_state or "", kind, broker)


def _commits(
    topics: Sequence[Any],
) -> Iterator[tuple[TopicPartition, Committed | Unstable | Unseen]]:
    for topic in topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            if errors.for_code(partition.error_code) is errors.UnstableOffsetCommitError:
                yield where, Unstable()
            elif partition.error_code:
                word = error_name(errors.for_code(partition.error_code))
                yield where, Unseen(str(where), f"its coordinator answers {word}")
            elif partition.committed_offset != _NO_OFFSET:
                epoch = partition.committed_leader_epoch
                metadata = text.escape_bytes((partition.metadata or "").encode())
                yield where, Committed(partition.committed_offset, epoch if epoch >= 0 else None, metadata)


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups; no topics means all of them."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """By partition the start offset, -1 without one, and the lag, -1 if unknown."""


def share_offsets_request(groups: Sequence[str]) -> Any:
    group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in groups])


def read_progress(topics: Sequence[Any]) -> Iterator[tuple[TopicPartition, ShareProgress | Unseen]]:
    """Yield the progress in each partition that has a start offset."""
    for topic in topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.topic_name, partition.partition_index)
            if partition.error_code:
                word = error_name(errors.for_code(partition.error_code))
                yield where, Unseen(str(where), f"its coordinator answers {word}")
            elif partition.start_offset >= 0:
                lag = None if partition.lag is None or partition.lag < 0 else partition.lag
                yield where, ShareProgress(partition.start_offset, lag)


class StreamsGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups to describe."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups' topologies, None before they are initialised, and their members with tasks."""


def describe_streams_request(groups: Sequence[str]) -> Any:
    return StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)


def read_stores(group: Any) -> Sequence[StreamsStore]:
    """Return the state stores of a described group, empty before its topology is initialised."""
    parts = (group.topology.subtopologies if group.topology else None) or ()
    topology = [
        (
            part.subtopology_id,
            (*part.source_topics, *(topic.name for topic in part.repartition_source_topics)),
            [topic.name for topic in part.state_changelog_topics],
        )
        for part in parts
    ]
    assignments = [member.assignment for member in group.members]
    tasks = (
        _counted(assignment.active_tasks for assignment in assignments),
        _counted(assignment.standby_tasks for assignment in assignments),
        _counted(assignment.warmup_tasks for assignment in assignments),
    )
    return described_stores(topology, tasks)


def _counted(tasks_of_members: Iterable[Iterable[Any]]) -> Mapping[str, int]:
    numbers: Counter[str] = Counter()
    for task in chain.from_iterable(tasks_of_members):
        numbers[task.subtopology_id] += len(task.partitions)
    return numbers
