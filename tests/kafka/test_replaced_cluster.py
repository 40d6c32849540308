"""Proves that a cluster which was wiped and made again is read from its beginning, and that the page can
show it.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.test import override_settings

from dashboard.config import ClusterConfig, Config
from dashboard.models import Collector, GapRecord, Transaction
from dashboard.runtime import collector_store, leases, loop, visibility
from dashboard.tasks import tails
from sandbox.kafka import Broker
from tests.brokers import create_topics
from tests.transaction_load import commit
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

NAME = "replaced"


def read(lease: leases.Lease) -> set[str]:
    """Read everything up to now, and return the ids that are known then."""
    began_ms = loop.now_ms()

    def is_read() -> bool:
        tails.read_until(lease, time.monotonic() + 0.3)
        return (Collector.objects.get().seen_through_ms or 0) > began_ms

    wait_for(is_read, "everything is seen", 60)
    return set(Transaction.objects.values_list("transactional_id", flat=True))


def test_a_cluster_recreated_at_its_address_is_read_from_its_beginning(tmp_path: Path) -> None:
    with Broker(tmp_path / "first") as first:
        cluster = ClusterConfig(NAME, {"bootstrap.servers": first.bootstrap})
        collector_store.sync_clusters([NAME])
        lease = leases.acquire(NAME, tails.tail_name(0), holder="test", now_ms=loop.now_ms())
        assert lease is not None
        with override_settings(FENCELINE=Config(clusters={NAME: cluster})):
            create_topics(first.bootstrap, "t")
            commit(first.bootstrap, "old")
            assert read(lease) == {"old"}
            first.stop()
            with Broker(tmp_path / "second", port=first.port) as second:
                create_topics(second.bootstrap, "t")
                commit(second.bootstrap, "new")
                assert read(lease) == {"new"}
    (gap,) = GapRecord.objects.filter(scope="history")
    assert "__transaction_state" in gap.reason
    # As of its last look: nobody looks any more.
    assert visibility.noun_visibility(NAME, now_ms=Collector.objects.get().seen_through_ms).gaps == []
