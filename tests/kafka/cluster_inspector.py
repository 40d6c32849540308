"""The collectors that recoveries are made of, run by hand on one real cluster."""

from dashboard.models import Collector, Recovery
from dashboard.recoveries import store as recovery_store
from dashboard.tasks import recoveries as task
from dashboard.tasks import tails
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.driven import read_to_end, take_lease, take_round
from tests.waiting import wait_for

DEADLINE_S = 60


class ClusterInspector:
    """The collectors that a recovery is made of, on one cluster."""

    def __init__(self, collected: CollectedPartitions) -> None:
        self.collected = collected
        names = tails.tail_name(0), recovery_store.NAME
        self._tail, self._recoveries = (take_lease(collected.name, name) for name in names)

    def poll(self) -> None:
        """Let each of them poll everything up to now."""
        read_to_end(self._tail, tails.tailed, self.collected.properties)
        self.collected.poll()
        take_round(task.follow_in_turns(self._recoveries))

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
