"""Identify the producer behind a transactional id: its engine, instance and part, with the evidence.

An id's shape alone proves nothing: any client may be called `orders-1-2`. So each engine needs a second sign:

Kafka Streams   a member of the group named like the application, whose client id has the process and thread
                of the id: `APP-PROCESS-StreamThread-N-consumer` (StreamThread, ClientUtils)
Kafka Connect   the id `connect-cluster-GROUP`, used by the leader of that group
                (DistributedConfig.transactionalProducerId); a task's id begins with GROUP (Worker)
"""

from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from fenceline.decode.consumer_offsets import Member
from fenceline.kafka.applications import Application, Shape, application_of
from fenceline.kafka.fold.counting import OFFSETS_TOPIC
from fenceline.owners import Owner

THREAD, _UUID_LENGTH = "-StreamThread-", 36
_LEADER = "connect-cluster-"
#: Maximum hyphens of an id at which it is split.
_MOST_SPLITS = 50
#: Maximum clients of a group that are named.
_MOST_CLIENTS = 3
_CHANGELOG, _REPARTITION = "-changelog", "-repartition"


class Engine(StrEnum):
    """The kind of program that uses an id."""

    KAFKA_STREAMS = "Kafka Streams"
    KAFKA_CONNECT = "Kafka Connect"


class ProducerIdentity(NamedTuple):
    """The program behind an id."""

    engine: Engine
    application: str
    #: The id's parts, most general first: ("process", …), ("thread", …), ("task", …), ("connector", …).
    parts: Sequence[tuple[str, str]]
    #: The evidence for the engine besides the id's shape; "" without any.
    sign: str = ""
    #: The machine its client connects from; "" if unknown.
    host: str = ""
    #: The consumer group that commits with the id; "" without one.
    group: str = ""


class ApplicationName(NamedTuple):
    """The name of an id's application beyond its shape, and the evidence."""

    name: str
    because: str
    #: At most three members of the group it commits for, without their topics.
    clients: Sequence[Member] = ()


class StreamsTopic(StrEnum):
    """The purpose of a topic that Kafka Streams writes to."""

    CHANGELOG = "changelog"
    REPARTITION = "repartition"
    #: An output topic of any name.
    SINK = "sink"


def identify_producer(
    transactional_id: str, clients: Iterable[Member], known_ids: Container[str]
) -> ProducerIdentity | None:
    """Return the program behind an id; None if no engine is known to use it.

    `clients` are the members of the group named like the id's application; `known_ids` has the existing ids
    of `leader_ids`.
    """
    application = application_of(transactional_id)
    if application.kind is Shape.STREAMS:
        return _of_streams(application, list(clients))
    return _of_connect(transactional_id, known_ids)


def name_application(
    owner: Owner | None, groups: Sequence[str], clients: Sequence[Member]
) -> ApplicationName | None:
    """Name an id's application: by an owner's pattern, else by the single group that it commits for.

    `groups` are the groups whose offsets its newest transaction added, `clients` the members of the first
    one. None if nothing but the id's shape is known.
    """
    shown = sorted({client._replace(topics=None) for client in clients})[:_MOST_CLIENTS]
    if owner is not None and owner.application:
        return ApplicationName(owner.application, f"[[owners]] names {owner.match} so", shown)
    if len(groups) == 1:
        return ApplicationName(groups[0], "it commits the offsets of this group", shown)
    return None


def leader_ids(transactional_id: str) -> Sequence[str]:
    """Return the candidate ids of Connect leaders; one of them exists if the id is a Connect task's."""
    if transactional_id.startswith(_LEADER):
        return (transactional_id,)
    return [f"{_LEADER}{group}" for group, _, _ in _splits(transactional_id)]


def streams_topic(application: str, topic: str) -> StreamsTopic | None:
    """Return why a Kafka Streams application writes to a topic; None for the offsets topic."""
    if topic.startswith(f"{application}-"):
        if topic.endswith(_CHANGELOG):
            return StreamsTopic.CHANGELOG
        if topic.endswith(_REPARTITION):
            return StreamsTopic.REPARTITION
    return None if topic == OFFSETS_TOPIC else StreamsTopic.SINK


def _of_streams(application: Application, clients: Sequence[Member]) -> ProducerIdentity:
    is_process = len(application.member) == _UUID_LENGTH
    if is_process:
        parts: tuple[tuple[str, str], ...] = (("process", application.member), ("thread", application.slot))
        own = f"{application.application}-{application.member}{THREAD}{application.slot}-"
    else:
        parts, own = (("task", f"{application.member}_{application.slot}"),), f"{application.application}-"
    own_clients = (client for client in clients if client.client_id.startswith(own))
    client = next((client for client in own_clients if THREAD in client.client_id), None)
    if client is None:
        return ProducerIdentity(Engine.KAFKA_STREAMS, application.application, parts)
    sign = f"client {client.client_id} is a member of group {application.application}"
    # A task id of exactly_once (before version 2) may belong to any member.
    host = client.host.lstrip("/") if is_process else ""
    name = application.application
    return ProducerIdentity(Engine.KAFKA_STREAMS, name, parts, sign, host, name)


def _of_connect(transactional_id: str, known_ids: Container[str]) -> ProducerIdentity | None:
    if transactional_id.startswith(_LEADER):
        group = transactional_id.removeprefix(_LEADER)
        return ProducerIdentity(Engine.KAFKA_CONNECT, group, (("leader of", group),))
    for group, connector, task in _splits(transactional_id):
        leader = f"{_LEADER}{group}"
        if leader in known_ids:
            parts = (("connector", connector), ("task", task))
            return ProducerIdentity(Engine.KAFKA_CONNECT, group, parts, f"the id {leader} exists")
    return None


def _splits(transactional_id: str) -> Iterable[tuple[str, str, str]]:
    """Yield the splits of `GROUP-CONNECTOR-TASK`, longest group first: both names may have hyphens."""
    head, _, task = transactional_id.rpartition("-")
    if task.isdecimal():
        places = [place for place, letter in enumerate(head) if letter == "-" and 0 < place < len(head) - 1]
        for place in reversed(places[:_MOST_SPLITS]):
            yield head[:place], head[place + 1 :], task
