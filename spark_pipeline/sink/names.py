"""Transactional ids: `prefix-{ledger}-p{partition}-g{generation}-b{batch % 2}-s{slot}`, read from the right.

Few enough to be kept by the brokers (they remember an id for seven days), and never one that a task of
another run, or a late task of the same batch, can take from a transaction that the driver has accepted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: Task attempts are distinguished by their id modulo this; each may be open at the same time.
SLOTS = 64
#: How much of the ledger's id is in a transactional id.
LEDGER_CHARACTERS = 8
#: Kafka takes ids of up to 32,767 bytes; broker tools and ACLs cope with far fewer.
MOST_PREFIX_BYTES = 200

_TAIL = re.compile(r"-([0-9a-f]{8})-p(\d+)-g(\d+)-b([01])-s(\d+)$")


class Parts(NamedTuple):
    """What a transactional id of the sink contains."""

    #: The prefix and the ledger, which are the same in all ids of one query.
    stem: str
    partition: int
    generation: int
    #: The batch's id modulo 2.
    parity: int
    slot: int

    def __str__(self) -> str:
        return f"{self.stem}-p{self.partition}-g{self.generation}-b{self.parity}-s{self.slot}"


def id_stem(prefix: str, ledger_id: str) -> str:
    """Return how all ids of a ledger begin."""
    return f"{prefix}-{ledger_id[:LEDGER_CHARACTERS]}"


def parse_id(transactional_id: str) -> Parts | None:
    """Return the parts of an id, None when it is none of the sink's."""
    found = _TAIL.search(transactional_id)
    if found is None:
        return None
    partition, generation, parity, slot = (int(each) for each in found.groups()[1:])
    return Parts(transactional_id[: found.end(1)], partition, generation, parity, slot)


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
