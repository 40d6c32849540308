"""The topics of a cluster, and known topics that no longer exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from fenceline.facts import TopicPartition
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.reads import Topology


def describe_topics(
    reads: ClusterReads, wanted: Collection[TopicPartition] | None, known: Iterable[TopicPartition]
) -> Topology:
    """Return the topics of these partitions, all visible ones if None. Raises `AdminUnavailable`.

    A broker's list of all topics omits those that we may not DESCRIBE. So missing known topics are requested
    by name: then the broker refuses them, and they count as unreadable.
    """
    topology = reads.describe_topology(None if wanted is None else {where.topic for where in wanted})
    unlisted = {where.topic for where in known} - topology.topic_ids.keys()
    unlisted -= {unseen.what for unseen in topology.unseen}
    if wanted is not None or not unlisted:
        return topology
    named = reads.describe_topology(unlisted)
    refused = tuple(unseen for unseen in named.unseen if unseen.what not in named.missing)
    return replace(topology, unseen=(*topology.unseen, *refused))
