"""The rights that Fenceline uses on a cluster, and the pages each right is for (docs/design/kafka.md §1.2).

In Kafka READ, WRITE, DELETE and ALTER on a resource include DESCRIBE on it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fenceline.compat import StrEnum

#: kafka-acls' name for every resource.
EVERY = "*"
#: The coordinators' topics of transactional ids, and of groups.
TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"


class Resource(StrEnum):
    """The type of a right's resource, as named by kafka-acls' options."""

    CLUSTER = "cluster"
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Right(NamedTuple):
    """An operation on a resource; `dark` names the pages that lack data without it, and why."""

    operation: str
    resource: Resource
    name: str
    dark: str
    #: Whether a whole page lacks data without it, and not only a part of one.
    needed: bool = True

    @property
    def operation_name(self) -> str:
        """Return the operation's name for kafka-acls: only `DescribeConfigs` has two words."""
        words = self.operation.split("_")
        return "".join(map(str.capitalize, words)) if len(words) > 1 else self.operation

    @property
    def resource_option(self) -> str:
        """Return the resource's option for kafka-acls: `--topic '*'`."""
        if self.resource is Resource.CLUSTER:
            return "--cluster"
        if self.is_prefix:
            return f"--{self.resource} {shlex.quote(self.name[:-1])} --resource-pattern-type prefixed"
        return f"--{self.resource} {shlex.quote(self.name)}"

    @property
    def is_prefix(self) -> bool:
        """Whether the name is a prefix pattern: `orders-*`."""
        return self.name != EVERY and self.name.endswith(EVERY)

    def __str__(self) -> str:
        """Return the right in words: `READ on topic __transaction_state`."""
        name = "" if self.resource is Resource.CLUSTER else f" {self.name}"
        return f"{self.operation} on {self.resource}{name}"


class TrialVerdict(StrEnum):
    """The result of testing a right."""

    GRANTED = "granted"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"


class RightTrial(NamedTuple):
    """The verdict on a right, with a reason if it is inconclusive."""

    verdict: TrialVerdict
    reason: str = ""


#: The rights for reading, in the order in which they are tested.
TO_LOOK = (
    Right(
        "DESCRIBE",
        Resource.TOPIC,
        TRANSACTION_STATE,
        "Transactions: no id can be looked up, since it cannot be seen whether the topic exists",
    ),
    Right(
        "READ",
        Resource.TOPIC,
        TRANSACTION_STATE,
        "Events, Recoveries: history comes from the coordinators' lists and markers in topics alone",
    ),
    Right(
        "DESCRIBE",
        Resource.TOPIC,
        CONSUMER_OFFSETS,
        "Groups: no group can be looked up, since it cannot be seen whether the topic exists",
    ),
    Right(
        "READ",
        Resource.TOPIC,
        CONSUMER_OFFSETS,
        "Groups: no commit times, so no lag in seconds, no trend and no history",
    ),
    Right(
        "DESCRIBE",
        Resource.TRANSACTIONAL_ID,
        EVERY,
        "Transactions: brokers leave out ids without a word, so nothing is ever called hanging",
    ),
    Right(
        "DESCRIBE",
        Resource.GROUP,
        EVERY,
        "Groups: offsets and lag of groups that may not be described, and who waits behind a transaction",
    ),
    Right(
        "DESCRIBE",
        Resource.TOPIC,
        EVERY,
        "Partitions: LSO, high watermark and lag of topics that may not be described",
    ),
    Right(
        "READ",
        Resource.TOPIC,
        EVERY,
        "Partitions: who holds the LSO back; no transaction is called hanging, no record is counted",
    ),
    Right(
        "DESCRIBE",
        Resource.CLUSTER,
        "",
        "lists of groups hold only those that may be described; whether an ACL hides ids is unknown",
        needed=False,
    ),
    Right(
        "DESCRIBE_CONFIGS",
        Resource.CLUSTER,
        "",
        "brokers' own limits: without them, Kafka's defaults decide what is overdue",
        needed=False,
    ),
)
#: The rights for ending a transaction; reading needs no right of this list. CLUSTER_ACTION serves as well as
#: ALTER.
TO_WRITE_MARKERS = Right(
    "ALTER", Resource.CLUSTER, "", "Actions: no abort marker for a hanging transaction", needed=False
)
TO_END = Right(
    "WRITE",
    Resource.TRANSACTIONAL_ID,
    EVERY,
    "Actions: no fencing, and no batch of the Spark sink is finished or rolled back",
    needed=False,
)


def rights_within(rights: Sequence[Right], patterns: Mapping[Resource, Sequence[str]]) -> Sequence[Right]:
    """Replace rights on every name by rights on the `patterns` of their type of resource.

    A pattern is a name, or a prefix followed by `*`.
    """
    return [
        right._replace(name=pattern)
        for right in rights
        for pattern in (patterns.get(right.resource, (EVERY,)) if right.name == EVERY else (right.name,))
    ]
