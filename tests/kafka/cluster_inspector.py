"""The collectors that recoveries are made of, run by hand on one real cluster."""

import time

from dashboard.models import Collector, Recovery
from dashboard.recoveries import store as recovery_store
from dashboard.runtime import leases, loop
from dashboard.tasks import recoveries as task
from dashboard.tasks import tails
from tests.kafka.collected_partitions import CollectedPartitions
from tests.turns import take_turns
from tests.waiting import wait_for

DEADLINE_S = 60


class ClusterInspector:
    """The collectors that a recovery is made of, on one cluster."""

    def __init__(self, collected: CollectedPartitions) -> None:
        self.collected = collected
        self._tail, self._recoveries = self._lease(tails.tail_name(0)), self._lease(recovery_store.NAME)

    def _lease(self, name: str) -> leases.Lease:
        lease = leases.acquire(self.collected.name, name, holder="test", now_ms=loop.now_ms())
        assert lease is not None
        return lease

    def poll(self) -> None:
        """Let each of them poll everything up to now."""
        began_ms = loop.now_ms()

        def is_read() -> bool:
            tails.read_until(self._tail, time.monotonic() + 0.3)
            row = Collector.objects.get(cluster__name=self.collected.name, name=tails.tail_name(0))
            return (row.seen_through_ms or 0) > began_ms

        wait_for(is_read, "everything is read", DEADLINE_S)
        self.collected.poll()
        take_turns(task.follow_in_turns(self._recoveries), 1.5)

    def wait_for_recovery(self, name: str, outcome: str) -> Recovery:
        """Poll until the recovery of an id has an outcome."""

        def found() -> Recovery | None:
            self.poll()
            return Recovery.objects.filter(transactional_id=name, outcome=outcome).first()

        try:
            row = wait_for(found, f"the episode of {name} is {outcome}", DEADLINE_S)
        except AssertionError:
            print(list(Recovery.objects.values()), list(Collector.objects.values("name", "error", "detail")))
            raise
        assert row is not None
        return row
