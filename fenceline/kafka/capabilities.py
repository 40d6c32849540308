"""Check Fenceline's capabilities on a cluster: the brokers' requests, our rights, the internal topics.

A broker that speaks Kafka's protocol may offer some requests and keep no internal topic. A capability that is
not known to work is *unknown* here, and never taken for a cluster without activity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.compat import SLOTS, StrEnum
from fenceline.formatting import list_names
from fenceline.kafka.acls import (
    CONSUMER_OFFSETS,
    EVERY,
    TO_END,
    TO_LOOK,
    TO_WRITE_MARKERS,
    TRANSACTION_STATE,
    Resource,
    Right,
    RightTrial,
    TrialVerdict,
)


class NeededRequest(NamedTuple):
    """A Kafka request: key, lowest sufficient version, name, and the first Apache Kafka release with it."""

    key: int
    version: int
    name: str
    since: str


class CapabilityState(StrEnum):
    """Whether a capability works: `limited` by narrower grants, `unknown` if it cannot be determined."""

    WORKS = "works"
    LIMITED = "limited"
    MISSING = "missing"
    UNKNOWN = "unknown"


class Capability(NamedTuple):
    name: str
    words: str
    requests: tuple[NeededRequest, ...]
    rights: tuple[Right, ...] = ()
    #: The internal topic that must exist.
    topic: str = ""
    #: The consequence for pages without it.
    without: str = ""
    #: The request of clusters that have anything to show, None if all have.
    subject: int | None = None


class CapabilityCheck(NamedTuple):
    """A capability's state on one cluster, the reason, and the commands or settings that would enable it."""

    name: str
    words: str
    state: CapabilityState
    why: str = ""
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, **SLOTS)
class ClusterSight:
    """The facts about one cluster that decide its capabilities."""

    #: By broker: its offered requests with their highest version; None if it did not answer.
    requests: Mapping[int, Mapping[int, int] | None]
    rights: Mapping[Right, RightTrial]
    #: By internal topic: whether it exists; topics that we may not describe are omitted.
    topics: Mapping[str, bool]
    #: By internal topic: number of listed ids or groups that Apache Kafka would store in it.
    listed: Mapping[str, int]


def _right(operation: str, resource: Resource, name: str = EVERY) -> Right:
    return next(right for right in TO_LOOK if right[:3] == (operation, resource, name))


_TOPICS, _READ = _right("DESCRIBE", Resource.TOPIC), _right("READ", Resource.TOPIC)
_IDS, _GROUPS = _right("DESCRIBE", Resource.TRANSACTIONAL_ID), _right("DESCRIBE", Resource.GROUP)
_CLUSTER, _SETTINGS = (_right(name, Resource.CLUSTER, "") for name in ("DESCRIBE", "DESCRIBE_CONFIGS"))
_FIND = NeededRequest(10, 4, "FindCoordinator v4", "3.0")
_DESCRIBE_IDS = NeededRequest(65, 0, "DescribeTransactions", "3.0")
_PRODUCERS = NeededRequest(61, 0, "DescribeProducers", "2.8")
#: ShareGroupHeartbeat, which brokers offer that have share groups (KIP-932).
_SHARE_GROUP_HEARTBEAT = 76
_FETCH = NeededRequest(1, 4, "Fetch v4", "0.11")

CAPABILITIES = (
    Capability(
        "transactions",
        "open transactions and their ids",
        (_FIND, _DESCRIBE_IDS, NeededRequest(66, 0, "ListTransactions", "3.0")),
        (_IDS,),
        without="transactions are known from their log alone",
    ),
    Capability(
        "log_history",
        "history of transactions from the coordinators' log",
        (_FETCH,),
        (_right("READ", Resource.TOPIC, TRANSACTION_STATE),),
        TRANSACTION_STATE,
        "events and durations come from lists and markers, shorter transactions are missed",
    ),
    Capability(
        "marker_history",
        "history of transactions from markers in topics",
        (_FETCH, _DESCRIBE_IDS),
        (_READ,),
        without="an end between two polls stays unknown where the log cannot be read",
    ),
    Capability(
        "partitions",
        "offsets, LSO and lag of partitions",
        (NeededRequest(2, 2, "ListOffsets v2", "0.11"),),
        (_TOPICS,),
        without="partitions are dark",
    ),
    Capability(
        "blockers",
        "which producer blocks a partition, and hanging transactions",
        (_PRODUCERS, _DESCRIBE_IDS),
        (_READ, _IDS),
        without="no transaction is called hanging",
    ),
    Capability(
        "groups",
        "consumer groups, their offsets and who waits",
        (NeededRequest(9, 8, "OffsetFetch v8", "3.0"), NeededRequest(16, 0, "ListGroups", "0.9")),
        (_GROUPS,),
        without="groups have no offsets",
    ),
    Capability(
        "commit_times",
        "lag in seconds and commit times of groups",
        (_FETCH,),
        (_right("READ", Resource.TOPIC, CONSUMER_OFFSETS),),
        CONSUMER_OFFSETS,
        "groups have no lag in seconds, no trend and no history",
    ),
    Capability(
        "share_groups",
        "progress of share groups",
        (NeededRequest(90, 0, "DescribeShareGroupOffsets", "4.1"),),
        (_GROUPS,),
        without="share groups have no progress",
        subject=_SHARE_GROUP_HEARTBEAT,
    ),
    Capability(
        "hidden_ids",
        "proof that no transactional id is hidden from us",
        (NeededRequest(29, 0, "DescribeAcls", "0.11"),),
        (_CLUSTER,),
        without="hanging is not decided, but with sees_all_transactional_ids = true",
    ),
    Capability(
        "settings",
        "brokers' own limits",
        (NeededRequest(32, 0, "DescribeConfigs", "0.11"),),
        (_SETTINGS,),
        without="Kafka's defaults decide what is overdue",
    ),
    Capability(
        "fence",
        "fence a producer, finish or roll back a batch of the Spark sink",
        (NeededRequest(22, 3, "InitProducerId v3", "2.5"), NeededRequest(26, 0, "EndTxn", "0.11"), _FIND),
        (TO_END,),
        without="these actions are refused",
    ),
    Capability(
        "abort_markers",
        "write an abort marker for a hanging transaction",
        (NeededRequest(27, 0, "WriteTxnMarkers", "0.11"), _PRODUCERS),
        (TO_WRITE_MARKERS,),
        without="this action is refused",
    ),
)


def check_capabilities(sight: ClusterSight, grants: Mapping[Right, str]) -> Sequence[CapabilityCheck]:
    """Check every capability on a cluster; `grants` has the command that grants each right."""
    return [_check(capability, sight, grants) for capability in CAPABILITIES]


def _check(capability: Capability, sight: ClusterSight, grants: Mapping[Right, str]) -> CapabilityCheck:
    if _has_no_subject(capability, sight):
        works = CapabilityState.WORKS
        return CapabilityCheck(capability.name, capability.words, works, "this cluster has none", ())
    found = [*_lacking(capability, sight), *_refused(capability, sight, grants), *_absent(capability, sight)]
    state = max((shortfall.state for shortfall in found), key=_ORDER.index, default=CapabilityState.WORKS)
    reasons = [shortfall.why for shortfall in found]
    if state is not CapabilityState.WORKS and capability.without:
        reasons.append(f"without it {capability.without}")
    remedies = tuple(dict.fromkeys(line for shortfall in found for line in shortfall.remedies))
    return CapabilityCheck(capability.name, capability.words, state, "; ".join(reasons), remedies)


def _has_no_subject(capability: Capability, sight: ClusterSight) -> bool:
    """Whether all brokers answered, and none offers the request without which there is nothing to show."""
    offers = [offered is None or capability.subject in offered for offered in sight.requests.values()]
    return capability.subject is not None and bool(offers) and not any(offers)


#: From best to worst: a missing requirement is certain, so it outweighs an unknown one.
_ORDER = (
    CapabilityState.WORKS,
    CapabilityState.LIMITED,
    CapabilityState.UNKNOWN,
    CapabilityState.MISSING,
)


class _Shortfall(NamedTuple):
    """One unmet or unknown requirement of a capability."""

    state: CapabilityState
    why: str
    remedies: tuple[str, ...] = ()


def _lacking(capability: Capability, sight: ClusterSight) -> Iterator[_Shortfall]:
    """Yield the requests that a broker does not offer, and brokers that did not answer."""
    silent = [f"broker {broker}" for broker, offered in sight.requests.items() if offered is None]
    if silent or not sight.requests:
        who = list_names(silent) or "no broker"
        yield _Shortfall(CapabilityState.UNKNOWN, f"{who} did not answer" if silent else "no broker answers")
    for needed in capability.requests:
        without = [
            f"broker {broker}"
            for broker, offered in sight.requests.items()
            if offered is not None and offered.get(needed.key, -1) < needed.version
        ]
        if without:
            does = "does" if len(without) == 1 else "do"
            why = f"{list_names(without)} {does} not offer {needed.name}"
            remedy = f"Apache Kafka offers {needed.name} since {needed.since}"
            yield _Shortfall(CapabilityState.MISSING, why, (remedy,))


def _refused(
    capability: Capability, sight: ClusterSight, grants: Mapping[Right, str]
) -> Iterator[_Shortfall]:
    """Yield the rights that were refused or could not be tried."""
    tried = list(_tried(capability, sight))
    granted = {right[:2] for right, trial in tried if trial.verdict is TrialVerdict.GRANTED}
    for right, trial in tried:
        if trial.verdict is TrialVerdict.REFUSED:
            narrow = right.name.endswith(EVERY) and right.operation != TO_END.operation
            narrow = narrow or right[:2] in granted
            state = CapabilityState.LIMITED if narrow else CapabilityState.MISSING
            only = ": what narrower grants allow is shown" if narrow else ""
            yield _Shortfall(state, f"no {right}{only}", _granting(grants, right))
        elif trial.verdict is TrialVerdict.INCONCLUSIVE:
            yield _Shortfall(CapabilityState.UNKNOWN, f"{right}: {trial.reason}", _granting(grants, right))


def _granting(grants: Mapping[Right, str], right: Right) -> tuple[str, ...]:
    return (grants[right],) if right in grants else ()


def _tried(capability: Capability, sight: ClusterSight) -> Iterator[tuple[Right, RightTrial]]:
    """Yield a capability's rights with their trials; rights on every name as tried within the scope."""
    for right in capability.rights:
        own = [
            (tried, trial)
            for tried, trial in sight.rights.items()
            if tried[:2] == right[:2]
            and (tried.name == right.name or (right.name == EVERY and tried.dark == right.dark))
        ]
        yield from own or [(right, RightTrial(TrialVerdict.INCONCLUSIVE, "not tried"))]


def _absent(capability: Capability, sight: ClusterSight) -> Iterator[_Shortfall]:
    """Yield the internal topic if it does not exist: the broker has none, or nothing has needed it yet."""
    topic = capability.topic
    if not topic or sight.topics.get(topic, True):
        return
    if sight.listed.get(topic):
        yield _Shortfall(CapabilityState.MISSING, f"this broker keeps no {topic}")
    else:
        yield _Shortfall(CapabilityState.UNKNOWN, f"{topic} does not exist yet: nobody has needed it")
