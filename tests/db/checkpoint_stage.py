"""Checkpoints on disk, polled by the real collector, saved and evaluated: from files to findings."""

from collections.abc import Mapping
from pathlib import Path

from collectors.checkpoints.collector import CheckpointsCollector, ObservedCheckpoints
from dashboard.config import CheckpointRoot
from dashboard.evaluation import evaluate as evaluate_rules
from dashboard.evaluation.snapshot import SnapshotReader
from dashboard.models import FindingRecord
from dashboard.streaming import checkpoint_store
from tests.db import factories
from tests.db.conftest import NOW_MS, Take


class CheckpointStage:
    """A root whose checkpoints are polled; each poll is a second after the one before."""

    def __init__(self, root: Path, take: Take) -> None:
        factories.collectors("transaction_state", "partitions", "groups")
        self.root, self.now_ms = root, NOW_MS
        self._saving, self._evaluating = take(checkpoint_store.NAME), take(evaluate_rules.NAME)
        self.restart()
        self._reader = SnapshotReader("prod")

    def restart(self) -> None:
        """Begin as another worker does: with what the database knows."""
        known = checkpoint_store.known_folders(self._saving)
        self._collector = CheckpointsCollector([CheckpointRoot(str(self.root), "prod")], known)

    def search_soon(self) -> None:
        """Search at the next poll for what is new."""
        for root in self._collector._roots:
            root.timer.poll_soon()

    def poll(self, times: int = 1) -> ObservedCheckpoints | None:
        """Poll, save and evaluate so often; return the last poll."""
        found = None
        for _ in range(times):
            self.now_ms += 1_000
            found = self._collector.poll(self.now_ms, every_s=0)
            checkpoint_store.save_checkpoints(
                self._saving, found.observations, found.gone, gaps=found.gaps, now_ms=self.now_ms
            )
            self._collector.mark_saved()
            factories.complete_next_polls()
            evaluate_rules.evaluate_cluster(self._evaluating, self._reader, now_ms=self.now_ms)
        return found

    def findings(self) -> Mapping[str, list[str]]:
        """Return the open findings: their severities by rule."""
        found: dict[str, list[str]] = {}
        for rule, severity in FindingRecord.objects.filter(closed_at=None).values_list("rule", "severity"):
            found.setdefault(rule, []).append(severity)
        return found
