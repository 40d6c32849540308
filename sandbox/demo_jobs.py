"""The PySpark jobs of the demo, in the driver that runs its queries: audit and history.

They repeat the jobs of `audit.py` and `history.py` of `spark_pipeline`, one after the other. `[audit]` and
`[history]` of fenceline.toml name their output folder.
"""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from spark_pipeline import audit, history

CLUSTER = "sandbox"
#: Seconds between two audits. The history runs with the first audit and then with every sixth.
AUDIT_EVERY_S = 20.0
HISTORY_ONE_IN = 6


class DemoJobs:
    """Runs the jobs in a thread until `stop` is set: `checkpoint` is audited."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        checkpoint: Path,
        outputs: Path,
        stop: threading.Event,
    ) -> None:
        # A separate session: the history job changes settings that the demo's queries must not have.
        self._spark, self._stop = spark.newSession(), stop
        self._bootstrap, self._outputs = bootstrap, outputs
        self._checkpoint = checkpoint

    def start(self) -> threading.Thread:
        """Start the thread."""
        thread = threading.Thread(target=self._run, name="jobs", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.wait(AUDIT_EVERY_S):
                return
            self._try("audit", self._audit)
            if number % HISTORY_ONE_IN == 0:
                self._try("history", self._history)

    def _try(self, name: str, job: Callable[[], str]) -> None:
        try:
            print(f"demo: {name}: {job()}", flush=True)
        except Exception as error:
            # The job runs again: its unpublished output does not count.
            if not self._stop.is_set():
                print(f"demo: {name} failed: {str(error).splitlines()[0]}", flush=True)

    def _audit(self) -> str:
        arguments = [
            *self._common(),
            "--pipeline",
            self._checkpoint.name,
            "--checkpoint",
            str(self._checkpoint),
        ]
        return audit.run_audit(self._spark, audit.argument_parser().parse_args(arguments))

    def _history(self) -> str:
        arguments = [*self._common(), "--checkpoint", str(self._outputs / "history-checkpoint")]
        return history.run_history(self._spark, history.argument_parser().parse_args(arguments))

    def _common(self) -> list[str]:
        return [
            "--bootstrap-servers", self._bootstrap, "--cluster", CLUSTER,
            "--kafka", "client.id=demo-jobs", "--output", str(self._outputs),
        ]  # fmt: skip
