"""The sink's files in a checkpoint: its ledger, the decisions about batches, created exclusively, readable by
every process; and the query's own files: its id, and the input of each batch.

Creating a file makes a decision; a second process reads the first one's decision. A transaction of a batch
may end only after the batch has a decision. This module needs neither Spark nor Kafka: with it the dashboard
reads the ledger, and decides and finishes batches of a dead driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

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
from fenceline.spark.records import Broken, Damage, Decided, Decision, Done, InputRange, Ledger, LedgerState
from spark_pipeline.sink.errors import Refused, SinkError
from spark_pipeline.sink.storage import Storage, open_storage, refuse_weak

T = TypeVar("T")
#: Number of batches whose files are kept, as in Spark's own logs.
KEPT_BATCHES = 100


class LedgerFolder:
    """The ledger of one checkpoint. Raises `SinkError` with the name of an unusable file."""

    def __init__(self, checkpoint: Storage) -> None:
        self._files = checkpoint.subfolder(FOLDER)

    @property
    def path(self) -> str:
        return self._files.path

    def read_state(self) -> LedgerState:
        """Return all of its present content; never raises for broken files."""
        names = self._files.file_names()
        newest = generation_name(read_names(names).generation)
        wanted = (name for name in names if not name.endswith(".generation") or name == newest)
        return decode_folder(self.path, {name: self._files.read(name) for name in wanted})

    def read_names(self) -> Names:
        """Return its content by the files' names alone."""
        return read_names(self._files.file_names())

    def read_identity(self) -> Ledger | None:
        """Return the ledger's query, None for a ledger that was not begun."""
        return self._present(decode_ledger(self._files.read(LEDGER)))

    def begin_ledger(self, ledger: Ledger) -> Ledger:
        """Begin a ledger, or return the identity of one that another process has begun."""
        self._files.create(LEDGER, encode_ledger(ledger))
        identity = self.read_identity()
        if identity is None:
            raise SinkError(f"{self.path}/{LEDGER} was removed a moment after it was written")
        return identity

    def claim_generation(self, run_id: str, now_ms: int) -> int:
        """Claim the next generation: earlier drivers then detect the takeover."""
        number = self.read_names().generation
        claimed = False
        while not claimed:
            number += 1
            data = encode_generation(Generation(number, run_id, now_ms))
            claimed = self._files.create(generation_name(number), data)
        return number

    def read_decision(self, round_: Round) -> Decision:
        decision = decode_decision(round_, self._files.read(decision_name(round_)))
        if isinstance(decision, Broken):
            raise self._unusable(decision)
        return decision

    def read_outcome(self, round_: Round) -> Done | None:
        """Return the outcome of a decision, None before it is carried out."""
        return self._present(decode_completion(round_, self._files.read(completion_name(round_))))

    def last_decision(self, names: Names, batch_id: int) -> Decision | None:
        """Return the last decision about a batch: a prepared one, or the newest abort."""
        rounds = names.rounds_of(batch_id)
        return self.read_decision(rounds[-1]) if rounds else None

    def last_prepared(self, names: Names) -> Decision | None:
        newest = {round_.batch_id: round_ for round_ in names.decisions}
        for round_ in reversed(newest.values()):
            decision = self.read_decision(round_)
            if decision.decided is Decided.PREPARED:
                return decision
        return None

    def decide(self, decision: Decision) -> Decision:
        """Decide about a batch; return the valid decision, this one or an earlier one about the round."""
        round_ = Round(decision.batch_id, decision.round)
        if self._files.create(decision_name(round_), encode_decision(decision)):
            return decision
        return self.read_decision(round_)

    def refuse_weak(self) -> None:
        """Raise `Refused` for a store that could accept two first decisions."""
        refuse_weak(self._files)

    def mark_done(self, done: Done) -> None:
        """Record that a decision was carried out; a repetition changes nothing."""
        self._files.create(completion_name(Round(done.batch_id, done.round)), encode_completion(done))

    def note_dropped(self, batch_id: int, rows: int) -> None:
        """Record the number of rows that the query dropped in a batch; a repetition changes nothing."""
        self._files.create(dropped_name(batch_id), encode_dropped(batch_id, rows))

    def purge(self, keep: int = KEPT_BATCHES) -> None:
        """Remove the files of old batches, but not those of open decisions."""
        names = self.read_names()
        batches = sorted({round_.batch_id for round_ in (*names.decisions, *names.done)})
        still_open = {round_.batch_id for round_ in names.open_rounds()}
        for batch_id in batches[:-keep]:
            if batch_id not in still_open:
                self._remove(names, batch_id)
        for number in names.generations[:-keep]:
            self._files.remove(generation_name(number))

    def _remove(self, names: Names, batch_id: int) -> None:
        # Remove the decision before its done file: a decision without one would be carried out again.
        for round_ in names.rounds_of(batch_id):
            self._files.remove(decision_name(round_))
        for round_ in names.done:
            if round_.batch_id == batch_id:
                self._files.remove(completion_name(round_))
        if batch_id in names.dropped:
            self._files.remove(dropped_name(batch_id))

    def _present(self, decoded: T | Broken) -> T | None:
        """Return the content of a file, None without the file."""
        if not isinstance(decoded, Broken):
            return decoded
        if decoded.damage is Damage.MISSING:
            return None
        raise self._unusable(decoded)

    def _unusable(self, broken: Broken) -> SinkError:
        folder = self.path.removesuffix(f"/{FOLDER}")
        return SinkError(
            f"{folder}/{broken.path} cannot be used: {broken.detail}. Restore this file; without it nobody "
            "knows whether its transactions are to be committed"
        )


def open_ledger(checkpoint: str, options: Mapping[str, str] | None = None) -> LedgerFolder:
    """Return the ledger of a checkpoint by its path or URL (fsspec's), with the options of its store."""
    return LedgerFolder(open_storage(checkpoint, options))


class QueryFiles:
    """The logs of one checkpoint, read only."""

    def __init__(self, root: Storage) -> None:
        self._root = root
        self._offsets = root.subfolder("offsets")
        self._commits = root.subfolder("commits")

    @property
    def path(self) -> str:
        return self._root.path

    def query_id(self) -> str | None:
        """Return the query's id, None when the checkpoint has none."""
        data = self._root.read("metadata")
        try:
            return None if data is None else str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError):
            raise Refused(
                f"{self.path}/metadata is no query's identity: restore it, Spark needs it as well"
            ) from None

    def newest_finished(self) -> int | None:
        """Return the newest batch in the commit log, None without any."""
        return max(_batches(self._commits), default=None)

    def newest_planned(self) -> int | None:
        """Return the newest batch in the offset log, None without any."""
        return max(_batches(self._offsets), default=None)

    def is_planned(self, batch_id: int) -> bool:
        return self._offsets.read(str(batch_id)) is not None

    def is_control(self, batch_id: int) -> bool:
        """Whether a batch has no data and never reaches the sink (Spark 4.2's `repartition`)."""
        lines = self._lines(batch_id)
        try:
            return bool(json.loads(lines[1]).get("controlBatchInfo"))
        except (IndexError, ValueError, AttributeError):
            return False

    def input_ranges(self, batch_id: int) -> tuple[InputRange, ...]:
        """Return a batch's input by source, from its own file and the previous batch's."""
        before, own = self._sources(batch_id - 1), self._sources(batch_id)
        return tuple(InputRange(source, before.get(source), end) for source, end in own.items())

    def _sources(self, batch_id: int) -> dict[str, str | None]:
        lines = self._lines(batch_id)
        pairs = []
        for number, line in enumerate(lines[2:]):
            # Version 2 begins each line with the source's name; names have no colon (docs/design/spark.md
            # §1.2).
            named = lines[0] == "v2" and ":" in line
            source, _, offset = line.partition(":") if named else (str(number), "", line)
            pairs.append((source, None if offset == "-" else offset))
        return dict(pairs)

    def _lines(self, batch_id: int) -> list[str]:
        data = self._offsets.read(str(batch_id)) if batch_id >= 0 else None
        return [] if data is None else data.decode(errors="replace").split("\n")


def _batches(folder: Storage) -> list[int]:
    return [int(name) for name in folder.file_names() if name.isdecimal()]
