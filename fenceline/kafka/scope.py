"""The scope of Fenceline on a cluster: patterns of topics, groups and transactional ids.

Patterns are those of Kafka's ACLs: `orders` is one name, `orders-*` a prefix, `*` every name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from fenceline.compat import SLOTS
from fenceline.decode.text import escape_bytes
from fenceline.kafka.acls import CONSUMER_OFFSETS, EVERY, TRANSACTION_STATE, Resource


@dataclass(frozen=True, **SLOTS)
class Scope:
    """Patterns of names; every name by default."""

    topics: tuple[str, ...] = (EVERY,)
    groups: tuple[str, ...] = (EVERY,)
    transactional_ids: tuple[str, ...] = (EVERY,)

    @property
    def has_all_ids(self) -> bool:
        return EVERY in self.transactional_ids

    @property
    def id_pattern(self) -> str | None:
        """Return the pattern of ids in scope for ListTransactions (KIP-1152, RE2); None for all ids."""
        if self.has_all_ids:
            return None
        return "|".join(
            re.escape(pattern.rstrip(EVERY)) + (".*" if pattern.endswith(EVERY) else "")
            for pattern in self.transactional_ids
        )

    def has_topic(self, name: str) -> bool:
        """Whether a topic is in scope; the two internal topics always are."""
        return name in (TRANSACTION_STATE, CONSUMER_OFFSETS) or _matches(self.topics, name)

    def has_group(self, name: str) -> bool:
        """Whether a group, given by its escaped id, is in scope."""
        return _matches(map(_escape, self.groups), name)

    def has_id(self, name: str) -> bool:
        """Whether a transactional id, given as escaped text, is in scope."""
        return _matches(map(_escape, self.transactional_ids), name)

    @property
    def patterns(self) -> Mapping[Resource, Sequence[str]]:
        return {
            Resource.TOPIC: self.topics,
            Resource.GROUP: self.groups,
            Resource.TRANSACTIONAL_ID: self.transactional_ids,
        }

    def __str__(self) -> str:
        """Return the limits of the scope in words; "" without limits."""
        named = (
            ("topics", self.topics),
            ("groups", self.groups),
            ("transactional ids", self.transactional_ids),
        )
        return "; ".join(f"{what} {', '.join(patterns)}" for what, patterns in named if EVERY not in patterns)


EVERYTHING = Scope()


@cache
def _escape(pattern: str) -> str:
    return escape_bytes(pattern.encode())


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith(EVERY) else name == pattern for pattern in patterns
    )
