"""The ledger of the exactly-once sink: its files' names, and the encoding of its facts.

    ledger.json       the query it belongs to (`fenceline.spark.records.Ledger`)
    <g>.generation    a run of a driver that has claimed generation g
    <N>.<R>.decision  the decision about batch N in round R
    <N>.<R>.done      the decision was carried out
    <N>.dropped       the number of rows the query dropped in batch N, if its progress counts them

Every file is JSON with a version "v", written once and never changed. A reader never raises: an unusable file
is `Broken`, with its path relative to the checkpoint. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from fenceline.decode.typed import fields_of, read_json
from fenceline.spark.records import (
    Broken,
    Damage,
    Decision,
    Done,
    Ledger,
    LedgerState,
    SinkTransaction,
)

T = TypeVar("T")

#: The ledger's folder in a checkpoint: Spark reads only its own folders.
FOLDER = "kafka_exactly_once"
LEDGER = "ledger.json"
VERSION = 1

_GENERATION = re.compile(r"(0|[1-9]\d*)\.generation")
_DROPPED = re.compile(r"(0|[1-9]\d*)\.dropped")
_OF_BATCH = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(decision|done)")


class Generation(NamedTuple):
    """`<g>.generation`: one run of a driver; the newest generation owns the query."""

    number: int
    #: Spark's run id; "" if the host does not know it.
    run_id: str
    at_ms: int


class Round(NamedTuple):
    """The batch and round of a decision, named by a file."""

    batch_id: int
    round: int


class Names(NamedTuple):
    """The facts in the names of a ledger's files, without reading a file. Ascending."""

    generations: tuple[int, ...]
    decisions: tuple[Round, ...]
    done: tuple[Round, ...]
    #: Batches with a known number of dropped rows.
    dropped: tuple[int, ...] = ()

    @property
    def generation(self) -> int:
        """The newest generation; 0 without any, because they count from 1."""
        return self.generations[-1] if self.generations else 0

    def open_rounds(self) -> tuple[Round, ...]:
        """Return the decisions without a done file, oldest first."""
        ended = set(self.done)
        return tuple(decision for decision in self.decisions if decision not in ended)

    def rounds_of(self, batch_id: int) -> tuple[Round, ...]:
        """Return the decisions about one batch, oldest first."""
        return tuple(decision for decision in self.decisions if decision.batch_id == batch_id)


def generation_name(number: int) -> str:
    """Return the name of a generation's file."""
    return f"{number}.generation"


def decision_name(which: Round) -> str:
    """Return the name of a decision's file."""
    return f"{which.batch_id}.{which.round}.decision"


def completion_name(which: Round) -> str:
    """Return the name of the file that marks a decision as carried out."""
    return f"{which.batch_id}.{which.round}.done"


def dropped_name(batch_id: int) -> str:
    """Return the name of the file with the number of rows that a batch dropped."""
    return f"{batch_id}.dropped"


def read_names(names: Iterable[str]) -> Names:
    """Read the names in a folder; other files are ignored."""
    generations: list[int] = []
    dropped: list[int] = []
    rounds: dict[str, list[Round]] = {"decision": [], "done": []}
    for name in names:
        if match := _OF_BATCH.fullmatch(name):
            rounds[match[3]].append(Round(int(match[1]), int(match[2])))
        elif match := _GENERATION.fullmatch(name):
            generations.append(int(match[1]))
        elif match := _DROPPED.fullmatch(name):
            dropped.append(int(match[1]))
    decisions, done = (tuple(sorted(group)) for group in rounds.values())
    return Names(tuple(sorted(generations)), decisions, done, tuple(sorted(dropped)))


def encode_ledger(ledger: Ledger) -> bytes:
    """Return the bytes of `ledger.json`."""
    return _encode(**fields_of(ledger))


def encode_generation(generation: Generation) -> bytes:
    """Return the bytes of a generation's file."""
    return _encode(generation=generation.number, run_id=generation.run_id, at_ms=generation.at_ms)


def encode_decision(decision: Decision) -> bytes:
    """Return the bytes of a decision's file."""
    ranges = [input_range._asdict() for input_range in decision.input]
    transactions = [transaction_to_json(transaction) for transaction in decision.transactions]
    return _encode(**{**fields_of(decision), "input": ranges, "transactions": transactions})


def encode_completion(done: Done) -> bytes:
    """Return the bytes of the file that marks a decision as carried out."""
    return _encode(**fields_of(done))


def encode_dropped(batch_id: int, rows: int) -> bytes:
    """Return the bytes of the file with the number of rows that a batch dropped."""
    return _encode(batch_id=batch_id, rows=rows)


def transaction_to_json(transaction: SinkTransaction) -> dict[str, Any]:
    """Convert a transaction to JSON values."""
    written = transaction.written
    return {
        **transaction._asdict(),
        "partitions": [list(partition) for partition in transaction.partitions],
        "written": None if written is None else [list(partition) for partition in written],
    }


def transaction_from_json(document: Mapping[str, Any]) -> SinkTransaction:
    """Read a transaction of `transaction_to_json`; raises KeyError, TypeError, ValueError on other input."""
    return read_json(SinkTransaction, document)


def decode_ledger(data: bytes | None) -> Ledger | Broken:
    """Decode `ledger.json`; None means a missing file."""
    return _decode(LEDGER, data, partial(read_json, Ledger))


def decode_generation(number: int, data: bytes | None) -> Generation | Broken:
    """Decode a generation's file; None means a missing file."""
    return _decode(generation_name(number), data, _generation, generation=number)


def decode_decision(which: Round, data: bytes | None) -> Decision | Broken:
    """Decode a decision's file; it is Broken if its batch or round differs from the name."""
    return _decode(decision_name(which), data, partial(read_json, Decision), **which._asdict())


def decode_completion(which: Round, data: bytes | None) -> Done | Broken:
    """Decode the file that marks a decision as carried out."""
    return _decode(completion_name(which), data, partial(read_json, Done), **which._asdict())


def decode_dropped(batch_id: int, data: bytes | None) -> int | Broken:
    """Decode the number of rows a batch dropped."""
    return _decode(dropped_name(batch_id), data, _dropped, batch_id=batch_id)


def decode_folder(path: str, files: Mapping[str, bytes | None]) -> LedgerState:
    """Decode a whole ledger from its files' contents by name; `path` is only shown."""
    names = read_names(files)
    decisions = [decode_decision(which, files[decision_name(which)]) for which in names.decisions]
    done = [decode_completion(which, files[completion_name(which)]) for which in names.done]
    dropped = {
        batch_id: decode_dropped(batch_id, files[dropped_name(batch_id)]) for batch_id in names.dropped
    }
    newest = names.generations[-1] if names.generations else None
    claimed = None if newest is None else decode_generation(newest, files[generation_name(newest)])
    return LedgerState(
        path,
        decode_ledger(files.get(LEDGER)),
        newest,
        claimed.run_id if isinstance(claimed, Generation) else "",
        tuple(decision for decision in decisions if isinstance(decision, Decision)),
        tuple(completion for completion in done if isinstance(completion, Done)),
        tuple(part for part in (*decisions, *done, *dropped.values(), claimed) if isinstance(part, Broken)),
        {batch_id: rows for batch_id, rows in dropped.items() if isinstance(rows, int)},
    )


def _encode(**fields: Any) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(
    name: str, data: bytes | None, read: Callable[[Mapping[str, Any]], T], **expected: int
) -> T | Broken:
    """Decode a file; `expected` are the numbers in its name, which its content must repeat."""
    path = f"{FOLDER}/{name}"
    if data is None:
        return Broken(path, Damage.MISSING, "there is no such file")
    if not data:
        return Broken(path, Damage.EMPTY, "the file has no content")
    try:
        document = json.loads(data)
        version = document["v"]
        if type(version) is int and version > VERSION:
            known = f"version {version}; this Fenceline knows {VERSION}"
            return Broken(path, Damage.NEWER, f"it is of {known}: upgrade it")
        for key, number in expected.items():
            if type(document[key]) is not int or document[key] != number:
                raise ValueError(f"its {key} is {document[key]}, by its name it is {number}")
        return read(document)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Broken(path, Damage.TORN, f"it is no file of a ledger ({type(error).__name__}: {error})")


def _generation(document: Mapping[str, Any]) -> Generation:
    return read_json(Generation, {**document, "number": document["generation"]})


def _dropped(document: Mapping[str, Any]) -> int:
    return read_json(int, document["rows"])
