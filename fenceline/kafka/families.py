"""Families of consumer groups: groups with random ids are folded under one name, with an explanation.

Spark creates a group per start of a query, the console consumer one per run, and many clients append a UUID.
Hundreds of such groups are no news. Every other group is its own family.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from fenceline.formatting import fit_name

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: `KafkaSourceProvider` of Spark's connector, without `kafka.group.id` and with any `groupIdPrefix`. The
#: number is a hash, and may be negative; the driver counts its consumers.
_SPARK = re.compile(rf"(.+)-{_UUID}(?:-(-?\d+))?-(?:driver-\d+|executor)\Z", re.DOTALL)
_SPARK_BATCH = "spark-kafka-relation"
_CONSOLE = re.compile(r"console-consumer-\d+\Z")
_CONSOLE_SHARE = re.compile(r"console-share-consumer-\d+\Z")
_RANDOM = re.compile(rf"(?<![0-9A-Za-z])(?:{_UUID}|[0-9a-f]{{32}})(?![0-9A-Za-z])")


class Family(NamedTuple):
    """The name under which a group is listed, and why groups are folded under it; "" if they are not."""

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
    """Return the family of a group, given as escaped text, with a fitting name. Never raises."""
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
