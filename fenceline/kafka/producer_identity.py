"""Who is behind a transactional id: the engine, the instance of it and its part, with what shows it.

An id's shape alone proves nothing: any client may be called `orders-1-2`. So each engine needs a second sign:

Kafka Streams   a member of the group that is called as the application, whose client id holds the process and
                the thread of the id: `APP-PROCESS-StreamThread-N-consumer` (StreamThread, ClientUtils)
Kafka Connect   the id `connect-cluster-GROUP`, which the leader of that group opens
                (DistributedConfig.transactionalProducerId); a task's id begins with GROUP (Worker)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from fenceline.kafka.applications import Application, Shape, application_of
from fenceline.kafka.fold.counting import OFFSETS_TOPIC
from fenceline.owners import Owner

THREAD, _UUID_LENGTH = "-StreamThread-", 36
_LEADER = "connect-cluster-"
#: Hyphens of an id that are tried.
_MOST_SPLITS = 50
#: Clients of a group that are named.
_MOST_CLIENTS = 3
_CHANGELOG, _REPARTITION = "-changelog", "-repartition"


class Engine(StrEnum):
    """What kind of program uses an id."""

    KAFKA_STREAMS = "Kafka Streams"
    KAFKA_CONNECT = "Kafka Connect"


class GroupClient(NamedTuple):
    """A member of a consumer group, as its coordinator writes it down."""

    client_id: str
    #: `/127.0.0.1`, as Kafka writes addresses.
    host: str


class ProducerIdentity(NamedTuple):
    """The program behind an id."""

    engine: Engine
    application: str
    #: What the id names, most general first: ("process", …), ("thread", …), ("task", …), ("connector", …).
    parts: Sequence[tuple[str, str]]
    #: What besides the id's shape shows the engine; "" where nothing does.
    sign: str = ""
    #: The machine that its client connects from; "" where it is not known.
    host: str = ""
    #: The consumer group that commits with it; "" where there is none.
    group: str = ""


class ApplicationName(NamedTuple):
    """What the application behind an id is called, beyond its shape, and what shows it."""

    name: str
    because: str
    #: Who is in the group that it commits for: client ids with their machines, at most three.
    clients: Sequence[GroupClient] = ()


class StreamsTopic(StrEnum):
    """What Kafka Streams writes to a topic for."""

    CHANGELOG = "changelog"
    REPARTITION = "repartition"
    #: Its output, of any name.
    SINK = "sink"


def identify_producer(
    transactional_id: str, clients: Iterable[GroupClient], known_ids: Container[str]
) -> ProducerIdentity | None:
    """Return who is behind an id; None for a client that is no engine's as far as is known.

    `clients` are the members of the group that is called as the id's application, `known_ids` holds those of
    `leader_ids` that exist.
    """
    application = application_of(transactional_id)
    if application.kind is Shape.STREAMS:
        return _of_streams(application, list(clients))
    return _of_connect(transactional_id, known_ids)


def name_application(
    owner: Owner | None, groups: Sequence[str], clients: Sequence[GroupClient]
) -> ApplicationName | None:
    """Return what an id's application is called: by an owner's pattern, else by the group that it serves.

    `groups` are those whose offsets its newest transaction added, `clients` the members of the first of them.
    None where nothing but the id's shape is known.
    """
    shown = sorted(set(clients))[:_MOST_CLIENTS]
    if owner is not None and owner.application:
        return ApplicationName(owner.application, f"[[owners]] names {owner.match} so", shown)
    if len(groups) == 1:
        return ApplicationName(groups[0], "it commits the offsets of this group", shown)
    return None


def leader_ids(transactional_id: str) -> Sequence[str]:
    """Return the ids of Connect leaders one of which exists if an id is a Connect task's."""
    if transactional_id.startswith(_LEADER):
        return (transactional_id,)
    return [f"{_LEADER}{group}" for group, _, _ in _splits(transactional_id)]


def streams_topic(application: str, topic: str) -> StreamsTopic | None:
    """Return what an application of Kafka Streams writes to a topic for; None for that of offsets."""
    if topic.startswith(f"{application}-"):
        if topic.endswith(_CHANGELOG):
            return StreamsTopic.CHANGELOG
        if topic.endswith(_REPARTITION):
            return StreamsTopic.REPARTITION
    return None if topic == OFFSETS_TOPIC else StreamsTopic.SINK


def _of_streams(application: Application, clients: Sequence[GroupClient]) -> ProducerIdentity:
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
    # A task of exactly_once, before version 2, may be any member's.
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
    """Yield how `GROUP-CONNECTOR-TASK` may be split: both names may have hyphens; the longest group first."""
    head, _, task = transactional_id.rpartition("-")
    if task.isdecimal():
        places = [place for place, letter in enumerate(head) if letter == "-" and 0 < place < len(head) - 1]
        for place in reversed(places[:_MOST_SPLITS]):
            yield head[:place], head[place + 1 :], task
