"""The ledger in a checkpoint: what was decided about each batch, created exclusively, read by anybody.

A decision is made by creating its file; who comes second reads what the first one decided. Nobody ends a
transaction of a batch before a decision of that batch is there. This module needs neither Spark nor Kafka:
the dashboard reads the ledger with it, and decides and finishes batches that a dead driver left.
"""

from __future__ import annotations

from collections.abc import Mapping

from fenceline.decode.ledger import (
    FOLDER,
    LEDGER,
    Generation,
    Names,
    Round,
    completion_name,
    decision_name,
    decode_completion,
    decode_decision,
    decode_folder,
    decode_ledger,
    dropped_name,
    encode_completion,
    encode_decision,
    encode_dropped,
    encode_generation,
    encode_ledger,
    generation_name,
    read_names,
)
from fenceline.spark.records import Broken, Damage, Decided, Decision, Done, Ledger, LedgerState
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.stores.storage import Storage, open_storage, refuse_weak

#: Batches whose files are kept, as Spark keeps its own.
KEPT_BATCHES = 100


class LedgerFolder:
    """The ledger of one checkpoint. Raises `SinkError` for a file that cannot be used, naming it."""

    def __init__(self, checkpoint: Storage) -> None:
        self._files = checkpoint.subfolder(FOLDER)

    @property
    def path(self) -> str:
        """The ledger's folder."""
        return self._files.path

    @property
    def storage(self) -> Storage:
        """The folder itself."""
        return self._files

    def read_state(self) -> LedgerState:
        """Return everything that is in it now; never raises for files that are broken."""
        names = self._files.file_names()
        newest = generation_name(read_names(names).generation)
        wanted = (name for name in names if not name.endswith(".generation") or name == newest)
        return decode_folder(self.path, {name: self._files.read(name) for name in wanted})

    def read_names(self) -> Names:
        """Return what there is, by the files' names alone."""
        return read_names(self._files.file_names())

    def read_identity(self) -> Ledger | None:
        """Return which query this ledger belongs to, None when it was not begun."""
        identity = decode_ledger(self._files.read(LEDGER))
        if isinstance(identity, Broken):
            if identity.damage is Damage.MISSING:
                return None
            raise self._unusable(identity)
        return identity

    def begin_ledger(self, ledger: Ledger) -> Ledger:
        """Begin a ledger, or return the one that somebody has begun already."""
        self._files.create(LEDGER, encode_ledger(ledger))
        identity = self.read_identity()
        if identity is None:
            raise SinkError(f"{self.path}/{LEDGER} was removed a moment after it was written")
        return identity

    def claim_generation(self, run_id: str, now_ms: int) -> int:
        """Claim the next generation: every driver before finds that it was taken over."""
        number = self.read_names().generation
        claimed = False
        while not claimed:
            number += 1
            data = encode_generation(Generation(number, run_id, now_ms))
            claimed = self._files.create(generation_name(number), data)
        return number

    def read_decision(self, round_: Round) -> Decision:
        """Return a decision."""
        decision = decode_decision(round_, self._files.read(decision_name(round_)))
        if isinstance(decision, Broken):
            raise self._unusable(decision)
        return decision

    def read_outcome(self, round_: Round) -> Done | None:
        """Return how a decision was carried out, None while it was not."""
        completion = decode_completion(round_, self._files.read(completion_name(round_)))
        if isinstance(completion, Broken):
            if completion.damage is Damage.MISSING:
                return None
            raise self._unusable(completion)
        return completion

    def last_decision(self, names: Names, batch_id: int) -> Decision | None:
        """Return the last decision about a batch: a prepared one, or the newest of those that aborted it."""
        rounds = names.rounds_of(batch_id)
        return self.read_decision(rounds[-1]) if rounds else None

    def last_prepared(self, names: Names) -> Decision | None:
        """Return the newest batch that was prepared."""
        newest = {round_.batch_id: round_ for round_ in names.decisions}
        for round_ in reversed(newest.values()):
            decision = self.read_decision(round_)
            if decision.decided is Decided.PREPARED:
                return decision
        return None

    def decide(self, decision: Decision) -> Decision:
        """Decide about a batch; return what holds: this, or what somebody decided about this round before."""
        round_ = Round(decision.batch_id, decision.round)
        if self._files.create(decision_name(round_), encode_decision(decision)):
            return decision
        return self.read_decision(round_)

    def refuse_weak(self) -> None:
        """Raise `Refused` where two who decide could both be taken for the first."""
        refuse_weak(self._files)

    def mark_done(self, done: Done) -> None:
        """Note that a decision was carried out; whoever comes second changes nothing."""
        self._files.create(completion_name(Round(done.batch_id, done.round)), encode_completion(done))

    def note_dropped(self, batch_id: int, rows: int) -> None:
        """Note how many rows the query dropped in a batch; whoever comes second changes nothing."""
        self._files.create(dropped_name(batch_id), encode_dropped(batch_id, rows))

    def purge(self, keep: int = KEPT_BATCHES) -> None:
        """Remove the files of all but the newest batches, and of decisions that are open none."""
        names = self.read_names()
        batches = sorted({round_.batch_id for round_ in (*names.decisions, *names.done)})
        still_open = {round_.batch_id for round_ in names.open_rounds()}
        for batch_id in batches[:-keep]:
            if batch_id not in still_open:
                self._remove(names, batch_id)
        for number in names.generations[:-keep]:
            self._files.remove(generation_name(number))

    def _remove(self, names: Names, batch_id: int) -> None:
        # The decision goes before its done file: a decision without one would be carried out again.
        for round_ in names.rounds_of(batch_id):
            self._files.remove(decision_name(round_))
        for round_ in names.done:
            if round_.batch_id == batch_id:
                self._files.remove(completion_name(round_))
        if batch_id in names.dropped:
            self._files.remove(dropped_name(batch_id))

    def _unusable(self, broken: Broken) -> SinkError:
        folder = self.path.removesuffix(f"/{FOLDER}")
        return SinkError(
            f"{folder}/{broken.path} cannot be used: {broken.detail}. Restore this file; without it nobody "
            "knows whether its transactions are to be committed"
        )


def open_ledger(checkpoint: str, options: Mapping[str, str] | None = None) -> LedgerFolder:
    """Return the ledger of a checkpoint by its path or URL (fsspec's), with the options of its store."""
    return LedgerFolder(open_storage(checkpoint, options))
