"""Reads the topology and tasks of Kafka Streams groups from their coordinators (KIP-1071).

The messages are Kafka's StreamsGroupDescribeRequest and -Response, which kafka-python lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from kafka.protocol.api_message import ApiMessage

from fenceline.engines.streams import StreamsStore, StreamsTasks, Subtopology, described_stores
from transaction_admin import schemas


class StreamsGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups to describe."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """The groups' topologies, None before they are initialised, and their members with tasks."""


def describe_streams_request(groups: Sequence[str]) -> Any:
    """Return the request about the given groups."""
    return StreamsGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=False)


def read_stores(group: Any) -> Sequence[StreamsStore]:
    """Return the state stores of a described group, empty before its topology is initialised."""
    parts = (group.topology.subtopologies if group.topology else None) or ()
    topology = [
        Subtopology(
            part.subtopology_id,
            (*part.source_topics, *(topic.name for topic in part.repartition_source_topics)),
            tuple(topic.name for topic in part.state_changelog_topics),
        )
        for part in parts
    ]
    assignments = [member.assignment for member in group.members]
    tasks = StreamsTasks(
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
