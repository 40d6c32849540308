"""Families of consumer groups: those whose ids are random, folded under one name and explained.

Spark gives each query a group per start, the console consumer one per run, and many clients put a UUID at
the end: by the hundred they are no news each. All other groups are their own family.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import NamedTuple

#: No family's name is longer, in characters.
LONGEST = 200

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: `KafkaSourceProvider` of Spark's connector: `kafka.group.id` is not set, `groupIdPrefix` may be. The number
#: is a hash, and may be negative; the driver counts its consumers.
_SPARK = re.compile(rf"(.+)-{_UUID}(?:-(-?\d+))?-(?:driver-\d+|executor)\Z", re.DOTALL)
_SPARK_BATCH = "spark-kafka-relation"
_CONSOLE = re.compile(r"console-consumer-\d+\Z")
_CONSOLE_SHARE = re.compile(r"console-share-consumer-\d+\Z")
_RANDOM = re.compile(rf"(?<![0-9A-Za-z])(?:{_UUID}|[0-9a-f]{{32}})(?![0-9A-Za-z])")


class Family(NamedTuple):
    """Under which name a group is listed; why groups of that name are folded together, "" where none are."""

    name: str
    explanation: str


_SPARK_STREAM_WORDS = (
    "Spark makes a group id of its own for every start of a query and commits nothing to it: where the query "
    "stands is in its checkpoint."
)
_SPARK_BATCH_WORDS = "Spark makes a group id of its own for every batch read, and commits nothing to it."
_CONSOLE_WORDS = "The console consumer makes a group for every run that names none."
_RANDOM_WORDS = "Ids with a random part: a new one for every start of the client."


@lru_cache(maxsize=8_192)
def family_of(group_id: str) -> Family:
    """Return the family of a group, given as escaped text. Never raises; no name is longer than LONGEST."""
    spark = _SPARK.match(group_id)
    if spark:
        words = _SPARK_BATCH_WORDS if spark[1] == _SPARK_BATCH or spark[2] is None else _SPARK_STREAM_WORDS
        return Family(fit_name(f"{spark[1]}-*"), words)
    if _CONSOLE.match(group_id):
        return Family("console-consumer-*", _CONSOLE_WORDS)
    if _CONSOLE_SHARE.match(group_id):
        return Family("console-share-consumer-*", _CONSOLE_WORDS)
    folded = _RANDOM.sub("*", group_id)
    if folded != group_id:
        return Family(fit_name(folded), _RANDOM_WORDS)
    return Family(fit_name(group_id), "")


def fit_name(name: str) -> str:
    """Return a name that is not too long: cut, it ends in 16 hex digits of its SHA-256, so two stay two."""
    if len(name) <= LONGEST:
        return name
    mark = "…" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return name[: LONGEST - len(mark)] + mark
