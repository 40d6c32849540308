"""The topics of a cluster, and which of those that were known before do not exist any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from fenceline.facts import TopicPartition
from transaction_admin.reads import ClusterReads, Topology


def describe_topics(
    reads: ClusterReads, wanted: Collection[TopicPartition] | None, known: Iterable[TopicPartition]
) -> Topology:
    """Return the topics of some partitions, all that may be seen when None. Raises `AdminUnavailable`.

    A broker leaves topics out of the list of all that we may not DESCRIBE. So known ones that are missing are
    asked for by name: then it refuses those, and they count as unseen.
    """
    topology = reads.describe_topology(None if wanted is None else {where.topic for where in wanted})
    unlisted = {where.topic for where in known} - topology.topic_ids.keys()
    unlisted -= {unseen.what for unseen in topology.unseen}
    if wanted is not None or not unlisted:
        return topology
    named = reads.describe_topology(unlisted)
    refused = tuple(unseen for unseen in named.unseen if unseen.what not in named.missing)
    return replace(topology, unseen=(*topology.unseen, *refused))
