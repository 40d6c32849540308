"""Generated topologies: what applications, groups and queries do, as it is observed, and the true edges."""

import random
from dataclasses import dataclass, field

from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    OffsetWrites,
    QueryLinks,
    TopicPartitionCounts,
    TopicWrites,
)

#: Source, target and group, as subjects.
Edge = tuple[str, str, str]


@dataclass(slots=True)
class Topology:
    """What there is, and what follows from it."""

    writes: list[TopicWrites] = field(default_factory=list)
    offset_writes: list[OffsetWrites] = field(default_factory=list)
    groups: list[GroupReads] = field(default_factory=list)
    queries: list[QueryLinks] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    edges: set[Edge] = field(default_factory=set)

    def observations(self) -> FlowObservations:
        """Return it as it is observed."""
        return FlowObservations(
            minutes=60,
            writes=self.writes,
            offset_writes=self.offset_writes,
            groups=self.groups,
            queries=self.queries,
            topics=dict.fromkeys(self.topics, TopicPartitionCounts(4)),
        )


def topology(seed: int) -> Topology:
    """Return one of 2 to 12 topics, with transactional producers, read-process-write applications, plain
    groups and Spark queries between them; cycles are as likely as chance has them."""
    dice = random.Random(seed)
    made = Topology(topics={f"topic-{number}" for number in range(dice.randint(2, 12))})
    for number in range(dice.randint(0, 4)):
        _producer(made, dice, f"producer-{number}x")
    for number in range(dice.randint(0, 4)):
        _processor(made, dice, f"processor-{number}x", number)
    for number in range(dice.randint(0, 5)):
        _consumer(made, dice, f"group-{number}")
    for number in range(dice.randint(0, 3)):
        _query(made, dice, f"query-{number}")
    return made


def _some(made: Topology, dice: random.Random, most: int) -> list[str]:
    topics = sorted(made.topics)
    return dice.sample(topics, dice.randint(1, min(most, len(topics))))


def _producer(made: Topology, dice: random.Random, name: str) -> None:
    for topic in _some(made, dice, 3):
        made.writes.append(TopicWrites(name, topic, dice.randint(0, 900), dice.randint(0, 3), {20: 5}, 1_000))
        made.edges.add((f"application:{name}", f"topic:{topic}", ""))


def _processor(made: Topology, dice: random.Random, name: str, number: int) -> None:
    _producer(made, dice, name)
    made.offset_writes.append(OffsetWrites(name, number, 60))
    for topic in _some(made, dice, 2):
        made.groups.append(GroupReads(f"{name}-group", topic, name, log_partition=number))
        made.edges.add((f"topic:{topic}", f"application:{name}", f"{name}-group"))


def _consumer(made: Topology, dice: random.Random, name: str) -> None:
    for topic in _some(made, dice, 3):
        made.groups.append(GroupReads(name, topic, log_partition=dice.randint(10, 49)))
        made.edges.add((f"topic:{topic}", f"group:{name}", ""))


def _query(made: Topology, dice: random.Random, name: str) -> None:
    """Add a query: with our sink its output is known from its ledger, its ids' transactions, or both."""
    ours, sources, outputs = dice.random() < 0.7, _some(made, dice, 2), _some(made, dice, 2)
    by_ledger = outputs if dice.random() < 0.5 else outputs[:1]
    application = f"{name}-sink" if ours else ""
    made.queries.append(
        QueryLinks(
            name,
            name,
            sources=sources,
            outputs=by_ledger if ours else (),
            application=application,
            sink="exactly_once" if ours else "kafka",
        )
    )
    made.edges |= {(f"topic:{topic}", f"query:{name}", "") for topic in sources}
    if ours:
        made.writes += [TopicWrites(application, topic, 12) for topic in outputs]
        made.edges |= {(f"query:{name}", f"topic:{topic}", "") for topic in outputs}
