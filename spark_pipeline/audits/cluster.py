"""What the audit's driver asks of a cluster: where partitions begin and end, and whose producers are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from fenceline.audit.producers import ProducerOwner
from fenceline.compat import SLOTS
from fenceline.facts import TopicPartition
from fenceline.kafka.partitions import Offsets
from spark_pipeline.audits.errors import AuditError
from spark_pipeline.sink import names
from spark_pipeline.sink.errors import Refused
from spark_pipeline.sink.options import PREFIX, translate_options
from transaction_admin.api import AdminUnavailable, Unseen
from transaction_admin.kafka_reads import KafkaPythonReads
from transaction_admin.properties import CannotTranslate

_PATIENCE_S = 30.0
#: Coordinators go through all ids for this question: so many producers are asked for.
_MOST_OWNERS = 20
_CLEANUP_POLICY = "cleanup.policy"


@dataclass(frozen=True, **SLOTS)
class TopicEnds:
    """Where topics begin and end at one moment."""

    offsets: Mapping[TopicPartition, Offsets]
    topic_ids: Mapping[str, str]
    #: Those whose records are compacted.
    compacted: frozenset[str]


def kafka_connection(java: Mapping[str, str]) -> Mapping[str, str]:
    """Return librdkafka's properties for those of Java clients. Raises AuditError for an unknown one."""
    try:
        return translate_options({f"{PREFIX}{name}": value for name, value in java.items()}).connection
    except Refused as error:
        raise AuditError(str(error)) from error


def read_topics(properties: Mapping[str, str], topics: Collection[str]) -> TopicEnds:
    """Return where the partitions of topics begin and end. Raises AuditError where one cannot be seen."""
    with closing(connect_reads(properties)) as reads:
        found = reads.describe_topology(topics)
        if found.missing:
            raise AuditError(
                f"there is no topic {', '.join(sorted(found.missing))} at {properties['bootstrap.servers']}"
            )
        _refuse_unseen(found.unseen)
        offsets = reads.list_offsets(found.partitions)
        _refuse_unseen(each for each in offsets.values() if isinstance(each, Unseen))
        policies = {topic: reads.topic_setting(topic, _CLEANUP_POLICY) or "" for topic in topics}
    seen = {where: each for where, each in offsets.items() if isinstance(each, Offsets)}
    compacted = frozenset(topic for topic, policy in policies.items() if "compact" in policy)
    return TopicEnds(seen, found.topic_ids, compacted)


def read_owners(properties: Mapping[str, str], producer_ids: Iterable[int]) -> Mapping[int, ProducerOwner]:
    """Return whose some producers are; those that no coordinator names are not in it."""
    asked = sorted({each for each in producer_ids if each >= 0})[:_MOST_OWNERS]
    if not asked:
        return {}
    with closing(connect_reads(properties)) as reads:
        try:
            found = reads.transactional_ids(asked)
        except AdminUnavailable:
            return {}
    return {producer_id: _owner(name) for producer_id, name in found.items()}


def _owner(transactional_id: str) -> ProducerOwner:
    parts = names.parse_id(transactional_id)
    return ProducerOwner(transactional_id, parts.stem if parts else "")


def connect_reads(properties: Mapping[str, str]) -> KafkaPythonReads:
    """Return a connection to a cluster. Raises AuditError where there is none."""
    try:
        return KafkaPythonReads(properties, _PATIENCE_S)
    except (AdminUnavailable, CannotTranslate) as error:
        raise AuditError(str(error)) from error


def _refuse_unseen(unseen: Iterable[Unseen]) -> None:
    for each in unseen:
        raise AuditError(f"{each.what} cannot be read: {each.reason}")
