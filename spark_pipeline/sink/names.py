"""Transactional ids: `prefix-{ledger}-p{partition}-g{generation % 2}-s{slot}`, read from the right.

Each task has two ids, regardless of the number of starts: brokers remember an id for seven days. Consecutive
generations share no id, so that no task of a former driver can abort a transaction that its successor
accepted. The lease stops tasks of older drivers. It is an id that is never used for a transaction; each
driver initialises it anew when it takes over, and gives its producer id and epoch to its tasks. A task that
finds others at the coordinator writes nothing.

Former versions wrote `prefix-{ledger}-p{partition}-g{generation}-b{batch % 2}-s{slot}`, with an id per start.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Consecutive generations have different ids; every second generation uses the same ones.
GENERATIONS = 2
#: Maximum ids that an attempt tries while others have open transactions.
SPARES = 8
#: Characters of the ledger's id in a transactional id.
LEDGER_CHARACTERS = 8
#: Kafka takes ids of up to 32,767 bytes; broker tools and ACLs cope with far fewer.
MOST_PREFIX_BYTES = 200

_TAIL = re.compile(r"-([0-9a-f]{8})-p(\d+)-g(\d+)(?:-b([01]))?-s(\d+)$")


class Parts(NamedTuple):
    """The parts of a transactional id of the sink."""

    #: The prefix and the ledger, the same in all ids of one query.
    stem: str
    partition: int
    #: The generation modulo 2; the generation itself in ids of former versions.
    generation: int
    slot: int
    #: The batch's id modulo 2, only in ids of former versions.
    parity: int | None = None

    def __str__(self) -> str:
        parity = "" if self.parity is None else f"-b{self.parity}"
        return f"{self.stem}-p{self.partition}-g{self.generation}{parity}-s{self.slot}"

    def may_be_of(self, generation: int) -> bool:
        """Whether a driver of this or an earlier generation may have used the id."""
        return self.parity is None or self.generation <= generation


def id_stem(prefix: str, ledger_id: str) -> str:
    return f"{prefix}-{ledger_id[:LEDGER_CHARACTERS]}"


def lease_id(stem: str) -> str:
    """Return the id by which tasks detect that another driver has taken over."""
    return f"{stem}-lease"


def task_ids(stem: str, partition: int, generation: int, attempt: int) -> list[str]:
    """Return the ids of an attempt and of no other; the first one without an open transaction is used.

    Slot 0 is the first choice of a first attempt, so that further ids exist only after repeated attempts or a
    leftover transaction. If Spark runs a stage again, it counts attempts from 0 again: the new attempt then
    skips ids that the first run has open.
    """
    slots = (_paired(attempt, spare) for spare in range(SPARES))
    return [str(Parts(stem, partition, generation % GENERATIONS, slot)) for slot in slots]


def _paired(one: int, other: int) -> int:
    """Return a unique number for a pair of numbers (Cantor's pairing function)."""
    return (one + other) * (one + other + 1) // 2 + other


def parse_id(transactional_id: str) -> Parts | None:
    """Return the parts of an id, None for an id that is not of a task of the sink."""
    match = _TAIL.search(transactional_id)
    if match is None:
        return None
    _, partition, generation, parity, slot = match.groups()
    stem = transactional_id[: match.end(1)]
    return Parts(stem, int(partition), int(generation), int(slot), None if parity is None else int(parity))


def prefix_refusal(prefix: str) -> str | None:
    """Return why a prefix is unusable, None for a usable one."""
    if not prefix:
        return "it is empty"
    if not prefix.isprintable() or "\\" in prefix:
        return "it has a control character or a backslash"
    size = len(prefix.encode())
    if size > MOST_PREFIX_BYTES:
        return f"it has {size} bytes; {MOST_PREFIX_BYTES} are the most"
    return None
