"""The sink's checks before it writes anything. Each refusal names the paths and the remedy.

Another query's checkpoint, another checkpoint's ledger, or a batch out of order would silently lose or double
records.
"""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

from fenceline.decode.ledger import Names
from fenceline.spark.records import Decision, Ledger
from spark_pipeline.sink.errors import Refused, input_text
from spark_pipeline.sink.ledger import LedgerFolder, QueryFiles
from spark_pipeline.sink.patience import PATIENCE_S


class SinkSettings(NamedTuple):
    """The settings of a sink, the same for both hosts."""

    #: The prefix of its transactional ids; without a user's choice the ledger's own prefix is used.
    prefix: str
    prefix_chosen: bool
    timeout_ms: int
    warning_ratio: float = 0.8
    accept_loss: frozenset[int] = frozenset()
    adopt: bool = False
    #: Whether several attempts of a task may run at once.
    speculation: bool = False
    #: How long a task that Spark has killed may continue: `spark.python.task.killTimeout`, and a little more.
    dying_s: float = 3.0
    #: Seconds that brokers may be unreachable before a batch fails.
    patience_s: float = PATIENCE_S


class StartupChecks:
    """Checks a query, its ledger and its batches; raises `Refused`."""

    def __init__(self, settings: SinkSettings, query: QueryFiles, ledger: LedgerFolder) -> None:
        self._settings, self._query, self._ledger = settings, query, ledger

    def refuse_stranger(self, query_id: str) -> str:
        """Return the query's id from the checkpoint; refuse another query's folder."""
        own_id = self._query.query_id()
        if own_id is None:
            raise Refused(
                f"{self._query.path} is no checkpoint: it has no file metadata. It must be the query's own "
                "checkpointLocation, with its scheme (hdfs://…) where that is not the local one"
            )
        if query_id and own_id != query_id:
            raise Refused(
                f"{self._query.path} is the checkpoint of query {own_id}, and this is query {query_id}: "
                "checkpoint must be the query's own checkpointLocation"
            )
        return own_id

    def own_ledger(self, query_id: str, batch_id: int) -> Ledger:
        """Return this query's ledger, new if `batch_id` is its first batch; refuse any other ledger."""
        ledger = self._ledger.read_identity()
        if ledger is None:
            self._refuse_history(batch_id)
        self._ledger.refuse_weak()
        if ledger is None:
            ledger = self._ledger.begin_ledger(
                Ledger(uuid.uuid4().hex, query_id, self._settings.prefix, now_ms(), batch_id)
            )
        if ledger.query_id != query_id:
            raise Refused(
                f"the ledger in {self._ledger.path} belongs to query {ledger.query_id}, and the "
                f"checkpoint's metadata names {query_id}. If metadata was lost (Spark 4.1 then makes up "
                f'another id), write {{"id":"{ledger.query_id}"}} to {self._query.path}/metadata. If the '
                f"checkpoint was reset on purpose, copy the ledger to another place, then remove "
                f"{self._ledger.path} as well"
            )
        if self._settings.prefix_chosen and ledger.prefix != self._settings.prefix:
            raise Refused(
                f"the ledger in {self._ledger.path} has transactional ids that begin with {ledger.prefix!r}, "
                f"and the option prefix is {self._settings.prefix!r}: keep the first. Transactions under "
                "another prefix would not be found again"
            )
        return ledger

    def _refuse_history(self, batch_id: int) -> None:
        finished = self._query.newest_finished()
        if (batch_id == 0 and finished is None) or self._settings.adopt:
            return
        raise Refused(
            f"{self._query.path} has batches (batch {batch_id} is next) and no ledger in "
            f"{self._ledger.path}. If the ledger was deleted, restore it: prepared transactions may be "
            "waiting for it. If another "
            "sink has written until now, start once with adopt=True: the ledger begins with this batch"
        )

    def refuse_batch(self, batch_id: int, names: Names, first_batch: int) -> Decision | None:
        """Return the last prepared decision; refuse a batch that cannot follow it."""
        prepared = self._ledger.last_prepared(names)
        last = prepared.batch_id if prepared is not None else first_batch - 1
        if not self._query.is_planned(batch_id):
            raise Refused(
                f"batch {batch_id} runs and {self._query.path}/offsets/{batch_id} is not there: with "
                "asyncProgressTrackingEnabled, or in real-time mode, a batch may read another range when it "
                "is run again. Exactly-once needs the default: turn it off"
            )
        if prepared is not None and batch_id == last:
            self._refuse_other_range(prepared)
            return prepared
        skipped = range(last + 1, batch_id)
        if batch_id <= last or not all(map(self._query.is_control, skipped)):
            raise Refused(
                f"Spark asks for batch {batch_id}, and the ledger in {self._ledger.path} has committed batch "
                f"{last}: the next one must be {last + 1}. The checkpoint was reset, edited or restored. "
                "Restore checkpoint and ledger of one moment; or, to begin anew, copy both to another place, "
                "then remove them: records of batches that are run again would be doubled"
            )
        return prepared

    def _refuse_other_range(self, prepared: Decision) -> None:
        now = self._query.input_ranges(prepared.batch_id)
        before = {range_.source: range_ for range_ in prepared.input}
        if all(range_.source not in before or range_ == before[range_.source] for range_ in now):
            return
        raise Refused(
            f"batch {prepared.batch_id} is committed, and was to read something else now. It has read\n"
            f"{input_text(prepared.input)}\nand {self._query.path}/offsets has now\n{input_text(now)}\n"
            "The checkpoint was reset or edited. Restore checkpoint and ledger of one moment; or copy both "
            "to another place, then remove them"
        )


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
