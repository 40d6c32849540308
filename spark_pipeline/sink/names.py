"""Transactional ids: `prefix-{ledger}-p{partition}-g{generation % 2}-s{slot}`, read from the right.

Two for each task, however often the query starts: brokers remember an id for seven days. Two generations that
follow each other share none, so that no task of a driver that was taken over can abort what its successor has
accepted. Tasks of older drivers are stopped by the lease: an id that is never used for a transaction, which
each driver initialises anew when it takes over. Its producer id and epoch are in what the driver gives its
tasks, and a task that finds others at the coordinator writes nothing.

Former versions wrote `prefix-{ledger}-p{partition}-g{generation}-b{batch % 2}-s{slot}`, with an id per start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Generations that follow each other have ids of their own; the one after uses them again.
GENERATIONS = 2
#: How many ids an attempt tries, where others are open.
SPARES = 8
#: How much of the ledger's id is in a transactional id.
LEDGER_CHARACTERS = 8
#: Kafka takes ids of up to 32,767 bytes; broker tools and ACLs cope with far fewer.
MOST_PREFIX_BYTES = 200

_TAIL = re.compile(r"-([0-9a-f]{8})-p(\d+)-g(\d+)(?:-b([01]))?-s(\d+)$")


class Parts(NamedTuple):
    """What a transactional id of the sink contains."""

    #: The prefix and the ledger, which are the same in all ids of one query.
    stem: str
    partition: int
    #: The generation modulo 2; the generation itself in ids of former versions.
    generation: int
    slot: int
    #: The batch's id modulo 2, in ids of former versions alone.
    parity: int | None = None

    def __str__(self) -> str:
        parity = "" if self.parity is None else f"-b{self.parity}"
        return f"{self.stem}-p{self.partition}-g{self.generation}{parity}-s{self.slot}"

    def may_be_of(self, generation: int) -> bool:
        """Whether a driver of this generation, or one before, may have used the id."""
        return self.parity is None or self.generation <= generation


def id_stem(prefix: str, ledger_id: str) -> str:
    """Return how all ids of a ledger begin."""
    return f"{prefix}-{ledger_id[:LEDGER_CHARACTERS]}"


def lease_id(stem: str) -> str:
    """Return the id by which tasks see whether another driver has taken over."""
    return f"{stem}-lease"


def task_ids(stem: str, partition: int, generation: int, attempt: int) -> list[str]:
    """Return the ids that an attempt may use, the first that is not open. No other attempt has one.

    Slot 0 is the first choice of a first attempt, so that further ids exist only where attempts were repeated
    or a transaction was left open. A stage that Spark runs again counts its attempts from 0 again: what the
    first run has open is passed over.
    """
    slots = (_paired(attempt, spare) for spare in range(SPARES))
    return [str(Parts(stem, partition, generation % GENERATIONS, slot)) for slot in slots]


def _paired(one: int, other: int) -> int:
    """Return a number of two numbers that no other pair has (Cantor's pairing function)."""
    return (one + other) * (one + other + 1) // 2 + other


def parse_id(transactional_id: str) -> Parts | None:
    """Return the parts of an id, None when it is none of the sink's tasks."""
    match = _TAIL.search(transactional_id)
    if match is None:
        return None
    _, partition, generation, parity, slot = match.groups()
    stem = transactional_id[: match.end(1)]
    return Parts(stem, int(partition), int(generation), int(slot), None if parity is None else int(parity))


def prefix_refusal(prefix: str) -> str | None:
    """Return why a prefix cannot be used, None when it can."""
    if not prefix:
        return "it is empty"
    if not prefix.isprintable() or "\\" in prefix:
        return "it has a control character or a backslash"
    size = len(prefix.encode())
    if size > MOST_PREFIX_BYTES:
        return f"it has {size} bytes; {MOST_PREFIX_BYTES} are the most"
    return None
