"""Generated pipelines: each link is given a guarantee first, then what is observed of such a link."""

import random
from dataclasses import dataclass, field, replace

from fenceline.facts import Isolation
from fenceline.flow.graph import NodeKind
from fenceline.flow.guarantee import Guarantee
from fenceline.flow.observations import (
    FlowObservations,
    GroupReads,
    ProducerKind,
    QueryLinks,
    TopicWrites,
)

_EXACTLY, _UNKNOWN = Guarantee.EXACTLY_ONCE, Guarantee.UNKNOWN
_AT_LEAST, _AT_MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
_READ = QueryLinks("", "", checkpoint=True)
#: What is observed of a query that reads with a guarantee, and whether an audit proves it.
_READERS = (
    (_EXACTLY, replace(_READ, isolation=Isolation.READ_COMMITTED), False),
    (_EXACTLY, _READ, True),
    (_UNKNOWN, _READ, False),
    (_UNKNOWN, replace(_READ, checkpoint=False), True),
    (_AT_LEAST, replace(_READ, asynchronous=True), True),
    (_AT_LEAST, replace(_READ, isolation=Isolation.READ_UNCOMMITTED), False),
)
_SINKS: tuple[tuple[Guarantee, dict[str, object]], ...] = (
    (_EXACTLY, {"sink": "exactly_once"}),
    (_EXACTLY, {"sink": "exactly_once", "prepared": 3}),
    (_UNKNOWN, {"sink": "exactly_once", "ledger_damaged": True}),
    (_UNKNOWN, {"sink": ""}),
    (_UNKNOWN, {"sink": "other"}),
    (_AT_LEAST, {"sink": "kafka"}),
    (_AT_MOST, {"sink": "exactly_once", "lost": 2}),
)
#: Of a group: who commits its offsets, and its isolation.
_GROUPS: tuple[tuple[Guarantee, str | None, Isolation], ...] = (
    (_AT_LEAST, "", Isolation.UNKNOWN),
    (_AT_LEAST, "", Isolation.READ_COMMITTED),
    (_UNKNOWN, None, Isolation.UNKNOWN),
)
_PROCESSORS = (
    (_EXACTLY, Isolation.READ_COMMITTED),
    (_UNKNOWN, Isolation.UNKNOWN),
    (_AT_LEAST, Isolation.READ_UNCOMMITTED),
)


@dataclass(slots=True)
class KnownPipeline:
    """One way from a producer, or a topic, to its end, and what each of its links guarantees."""

    links: list[tuple[str, Guarantee]] = field(default_factory=list)
    writes: list[TopicWrites] = field(default_factory=list)
    groups: list[GroupReads] = field(default_factory=list)
    queries: list[QueryLinks] = field(default_factory=list)
    outside: dict[str, ProducerKind] = field(default_factory=dict)
    proved: dict[str, int] = field(default_factory=dict)

    def observations(self) -> FlowObservations:
        """Return it as it is observed."""
        return FlowObservations(60, self.writes, (), self.groups, self.queries, outside=self.outside)

    @property
    def weakest(self) -> tuple[str, Guarantee]:
        """Return the first link of the weakest guarantee."""
        for guarantee in (_AT_MOST, _AT_LEAST, _UNKNOWN, _EXACTLY):
            for link in self.links:
                if link[1] is guarantee:
                    return link
        raise AssertionError("a pipeline has a link")


def known_pipeline(seed: int) -> KnownPipeline:
    """Return a pipeline of one to four steps."""
    dice, made = random.Random(seed), KnownPipeline()
    topic = "topic-0x"
    if dice.random() < 0.7:
        made.writes.append(TopicWrites("gateway", topic, 60))
        made.links.append((f"gateway → {topic}", _EXACTLY))
        _outside(made, dice, topic)
    elif not _outside(made, dice, topic):
        made.links.append((f"producers → {topic}", _UNKNOWN))
    for number in range(1, dice.randint(1, 3) + 1):
        following = f"topic-{number}x"
        step = dice.choice((_query, _processor))
        step(made, dice, number, topic, following)
        _outside(made, dice, following)
        topic = following
    _end(made, dice, topic)
    return made


def _outside(made: KnownPipeline, dice: random.Random, topic: str) -> bool:
    if dice.random() < 0.8:
        return False
    made.outside[topic] = dice.choice(list(ProducerKind))
    made.links.append((f"other producers → {topic}", _AT_LEAST))
    return True


def _query(made: KnownPipeline, dice: random.Random, number: int, source: str, target: str) -> None:
    name = f"query-{number}x"
    read, query, proved = dice.choice(_READERS[: dice.choice((2, len(_READERS)))])
    written, sink = dice.choice(_SINKS[: dice.choice((2, len(_SINKS)))])
    made.queries.append(
        replace(query, ident=name, name=name, sources=[source], outputs=[target], **sink)  # type: ignore[arg-type]
    )
    if proved:
        made.proved[name] = number
    made.links += [(f"{source} → {name}", read), (f"{name} → {target}", written)]


def _processor(made: KnownPipeline, dice: random.Random, number: int, source: str, target: str) -> None:
    name = f"processor-{number}x"
    read, isolation = dice.choice(_PROCESSORS[: dice.choice((1, len(_PROCESSORS)))])
    made.groups.append(GroupReads(f"{name}-group", source, name, isolation=isolation))
    made.writes.append(TopicWrites(name, target, 60))
    made.links += [(f"{source} → {name}", read), (f"{name} → {target}", _EXACTLY)]


def _end(made: KnownPipeline, dice: random.Random, topic: str) -> None:
    """End at a group, at a query whose output is not known, or at the topic."""
    kind = dice.choice((NodeKind.GROUP, NodeKind.QUERY, NodeKind.TOPIC))
    if kind is NodeKind.GROUP:
        guarantee, application, isolation = dice.choice(_GROUPS)
        made.groups.append(GroupReads("reports", topic, application, isolation=isolation))
        made.links.append((f"{topic} → reports", guarantee))
    elif kind is NodeKind.QUERY:
        read, query, _ = _READERS[2]
        made.queries.append(replace(query, ident="last", name="last", sources=[topic], sink="kafka"))
        made.links += [(f"{topic} → last", read), ("last → its sink", _AT_LEAST)]
