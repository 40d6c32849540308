"""Proves that a cluster which was wiped and made again is read from its beginning, its transactions and its
offsets, and that the page can show it.
"""

from pathlib import Path

import pytest

from dashboard.models import Collector, CommitRecord, GapRecord, Transaction
from dashboard.runtime import collector_store, leases, visibility
from dashboard.tasks import tails
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.driven import read_to_end, take_lease
from tests.kafka.group_commits import commit_offsets
from tests.transaction_load import commit
from transaction_admin.api import CONSUMER_OFFSETS, TRANSACTION_STATE

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

NAME = "replaced"


def read(bootstrap: str, lease: leases.Lease) -> set[str]:
    """Read everything up to now, and return the ids that are known then."""
    read_to_end(lease, tails.tailed, {"bootstrap.servers": bootstrap})
    return set(Transaction.objects.values_list("transactional_id", flat=True))


def tail_of_transactions() -> Collector:
    return Collector.objects.get(cluster__name=NAME)


def committed(collected: CollectedGroups) -> set[str]:
    """Read everything up to now, and return the groups whose offsets are known then."""
    collected.read()
    return set(CommitRecord.objects.values_list("group_id", flat=True))


def write(broker: Broker, name: str) -> None:
    """Write a transaction and offsets of a group to a cluster that has nothing."""
    create_topics(broker.bootstrap, "t")
    commit(broker.bootstrap, name)
    commit_offsets(broker.bootstrap, name, "t", p0=1)


def test_a_cluster_recreated_at_its_address_is_read_from_its_beginning(tmp_path: Path) -> None:
    with Broker(tmp_path / "first") as first:
        collector_store.sync_clusters([NAME])
        lease = take_lease(NAME, tails.tail_name(0))
        collected = CollectedGroups({"bootstrap.servers": first.bootstrap})
        write(first, "old")
        assert (read(first.bootstrap, lease), committed(collected)) == ({"old"}, {"old"})
        first.stop()
        with Broker(tmp_path / "second", port=first.port) as second:
            write(second, "new")
            assert (read(first.bootstrap, lease), committed(collected)) == ({"new"}, {"new"})
        collected.close()
    gaps = GapRecord.objects.filter(scope="history")
    assert [row.reason for row in gaps.filter(cluster__name=NAME) if TRANSACTION_STATE in row.reason]
    assert [row.reason for row in gaps.exclude(cluster__name=NAME) if CONSUMER_OFFSETS in row.reason]
    assert len(gaps) == 2
    # As of its last look: nobody looks any more.
    assert visibility.noun_visibility(NAME, now_ms=tail_of_transactions().seen_through_ms).gaps == []
