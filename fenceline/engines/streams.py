"""State stores of Kafka Streams: their source topics, and their tasks. Pure.

A store is rebuilt from its changelog topic, `APPLICATION-STORE-changelog`. A standby task follows the
changelog, so that another instance need not read all of it. Brokers report tasks only for the protocol of
KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_CHANGELOG = "-changelog"


class StreamsStore(NamedTuple):
    """One state store. Counts of tasks are None if brokers do not report them."""

    changelog: str
    #: Topics that its part of the topology reads, including repartition topics.
    sources: tuple[str, ...] = ()
    active: int | None = None
    standby: int | None = None
    #: Tasks that are building up, to move to another instance.
    warmup: int | None = None

    def name_in(self, application: str) -> str:
        """Return the name of the store in the application's code."""
        return self.changelog.removeprefix(f"{application}-").removesuffix(_CHANGELOG)


def described_stores(
    topology: Iterable[tuple[str, tuple[str, ...], Sequence[str]]], tasks: Sequence[Mapping[str, int]]
) -> Sequence[StreamsStore]:
    """Return the stores of a topology from brokers.

    `topology`: subtopologies, whose tasks run together (KIP-1071), with their sources and changelogs.
    `tasks`: the numbers of active, standby and warm-up tasks of all members by subtopology.
    """
    return sorted(
        StreamsStore(changelog, sources, *(numbers.get(ident, 0) for numbers in tasks))
        for ident, sources, changelogs in topology
        for changelog in changelogs
    )


def named_stores(application: str, topics: Iterable[str]) -> Sequence[StreamsStore]:
    """Return the stores that topic names show, the only source for the classic protocol."""
    start = f"{application}-"
    return sorted(
        StreamsStore(topic) for topic in topics if topic.startswith(start) and topic.endswith(_CHANGELOG)
    )
