"""A real broker for which plans are made: its configuration, the collectors' rows, and the plan."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django.test import override_settings

from collectors.checkpoints.collector import CheckpointsCollector
from dashboard.actions import planning
from dashboard.config import CheckpointRoot, ClusterConfig, Config
from dashboard.models import Query
from dashboard.runtime import leases, loop
from dashboard.streaming import checkpoint_store
from fenceline.limits import Limits
from fenceline.plans.plan import Act, Plan, RefusalReason, from_json
from sandbox.kafka import Broker
from tests.kafka.collected_partitions import CollectedPartitions
from tests.kafka.driven import take_lease
from tests.waiting import wait_for


class PlanningCluster:
    """A cluster of the configuration, whose partitions `collected` polls; `vouched`: no id is hidden."""

    def __init__(
        self, broker: Broker, *, properties: Mapping[str, str] | None = None, vouched: bool = True
    ) -> None:
        self.broker = broker
        self.collected = CollectedPartitions(broker.bootstrap, properties=properties, vouched=vouched)
        self.cluster = self.collected.name
        self.vouched = vouched
        self.limits = Limits()
        self.root: Path | None = None

    def close(self) -> None:
        """Close the connections."""
        self.collected.close()

    @contextmanager
    def configured(self) -> Iterator[None]:
        """Configure this cluster alone."""
        cluster = ClusterConfig(self.cluster, self.collected.properties, self.vouched)
        roots = [CheckpointRoot(str(self.root), self.cluster)] if self.root else []
        config = Config(clusters={self.cluster: cluster}, limits=self.limits, checkpoints=roots)
        with override_settings(FENCELINE=config):
            yield

    def plan(self, act: Act, *subjects: str, force: bool = False, later_ms: int = 0) -> Plan:
        """Return a plan; `later_ms`: by a clock that is so far ahead of this machine's."""
        with self.configured():
            now_ms = loop.now_ms() + later_ms
            made = planning.make_plan(self.cluster, act, subjects, force=force, now_ms=now_ms)
        assert from_json(made.as_json()).digest == made.digest
        return made

    def forced_plan(self, act: Act, subject: str) -> Plan:
        """Return a forced plan, once it can be made: a broker that is gone may still be asked."""

        def made() -> Plan | None:
            try:
                return self.plan(act, subject, force=True, later_ms=90_000)
            except planning.CannotPlan:
                return None

        return wait_for(made, "a plan", 90)

    def poll_checkpoints(self, root: Path) -> list[Query]:
        """Poll the checkpoints in a folder with the collector; return the queries."""
        self.root = root
        lease = take_lease(self.cluster, checkpoint_store.NAME)
        with self.configured():
            collector = CheckpointsCollector([CheckpointRoot(str(root), self.cluster)], ())
            found = collector.poll(loop.now_ms(), every_s=0)
            now_ms = loop.now_ms()
            checkpoint_store.save_checkpoints(
                lease, found.observations, found.gone, gaps=found.gaps, now_ms=now_ms
            )
        leases.release(lease)
        return list(Query.objects.filter(cluster__name=self.cluster))


def refusal_reasons(plan: Plan) -> list[list[RefusalReason]]:
    """Return the reasons of each subject's refusals."""
    return [[each.ground for each in subject.refusals] for subject in plan.subjects]


def refusal_texts(plan: Plan) -> str:
    """Return the texts of all refusals."""
    return " ".join(each.words for subject in plan.subjects for each in subject.refusals)


def effect_amounts(plan: Plan) -> list[dict[str, int | None]]:
    """Return the effects of each subject in numbers."""
    return [{each.name: each.amount for each in subject.effects} for subject in plan.subjects]
