"""The ledger of the exactly-once sink: its files' names, and facts to bytes and back.

    ledger.json       which query it belongs to (`fenceline.spark.records.Ledger`)
    <g>.generation    a run of a driver that has claimed generation g
    <N>.<R>.decision  what was decided about batch N in round R
    <N>.<R>.done      that it was carried out
    <N>.dropped       how many rows the query dropped in batch N, where its progress counts them

Every file is JSON with a version "v", written once and never changed. A reader never raises: a file that
cannot be used is `Broken`, with its path relative to the checkpoint. Unknown fields are left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fenceline.facts import TopicPartition
from fenceline.spark.records import (
    Broken,
    Damage,
    Decided,
    Decision,
    DecisionOutcome,
    Done,
    InputRange,
    Ledger,
    LedgerState,
    PartitionRecords,
    SinkTransaction,
)

T = TypeVar("T")

#: The ledger's folder inside of a checkpoint: Spark reads none that is not its own.
FOLDER = "kafka_exactly_once"
LEDGER = "ledger.json"
VERSION = 1

_GENERATION = re.compile(r"(0|[1-9]\d*)\.generation")
_DROPPED = re.compile(r"(0|[1-9]\d*)\.dropped")
_OF_BATCH = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(decision|done)")


class Generation(NamedTuple):
    """`<g>.generation`: one run of a driver; the newest one is the query's."""

    number: int
    #: Spark's run id; "" where the host does not have it.
    run_id: str
    at_ms: int


class Round(NamedTuple):
    """Which decision a file is about."""

    batch_id: int
    round: int


class Names(NamedTuple):
    """What the names of a ledger's files contain, before any of them is read. Ascending."""

    generations: tuple[int, ...]
    decisions: tuple[Round, ...]
    done: tuple[Round, ...]
    #: Batches whose dropped rows are known.
    dropped: tuple[int, ...] = ()

    @property
    def generation(self) -> int:
        """The newest generation; 0 without any: they count from 1."""
        return self.generations[-1] if self.generations else 0

    def open_rounds(self) -> tuple[Round, ...]:
        """Return the decisions that nobody has carried out to the end, oldest first."""
        ended = set(self.done)
        return tuple(each for each in self.decisions if each not in ended)

    def rounds_of(self, batch_id: int) -> tuple[Round, ...]:
        """Return the decisions about one batch, oldest first."""
        return tuple(each for each in self.decisions if each.batch_id == batch_id)


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
    """Return the name of the file with the rows that a batch dropped."""
    return f"{batch_id}.dropped"


def read_names(names: Iterable[str]) -> Names:
    """Sort a folder's names; those of other files are left out."""
    generations: list[int] = []
    dropped: list[int] = []
    rounds: dict[str, list[Round]] = {"decision": [], "done": []}
    for name in names:
        if found := _OF_BATCH.fullmatch(name):
            rounds[found[3]].append(Round(int(found[1]), int(found[2])))
        elif found := _GENERATION.fullmatch(name):
            generations.append(int(found[1]))
        elif found := _DROPPED.fullmatch(name):
            dropped.append(int(found[1]))
    decisions, done = (tuple(sorted(each)) for each in rounds.values())
    return Names(tuple(sorted(generations)), decisions, done, tuple(sorted(dropped)))


def encode_ledger(ledger: Ledger) -> bytes:
    """Return the bytes of `ledger.json`."""
    return _encode(
        ledger_id=ledger.ledger_id,
        query_id=ledger.query_id,
        prefix=ledger.prefix,
        created_ms=ledger.created_ms,
        first_batch=ledger.first_batch,
    )


def encode_generation(generation: Generation) -> bytes:
    """Return the bytes of a generation's file."""
    return _encode(generation=generation.number, run_id=generation.run_id, at_ms=generation.at_ms)


def encode_decision(decision: Decision) -> bytes:
    """Return the bytes of a decision's file."""
    return _encode(
        batch_id=decision.batch_id,
        round=decision.round,
        decided=decision.decided.value,
        by=decision.by,
        at_ms=decision.at_ms,
        ledger_id=decision.ledger_id,
        query_id=decision.query_id,
        run_id=decision.run_id,
        generation=decision.generation,
        reason=decision.reason,
        input=[each._asdict() for each in decision.input],
        transactions=[transaction_to_json(each) for each in decision.transactions],
    )


def encode_completion(done: Done) -> bytes:
    """Return the bytes of the file that marks a decision as carried out."""
    return _encode(
        batch_id=done.batch_id,
        round=done.round,
        outcome=done.outcome.value,
        at_ms=done.at_ms,
        by=done.by,
        lost=list(done.lost),
    )


def encode_dropped(batch_id: int, rows: int) -> bytes:
    """Return the bytes of the file with the rows that a batch dropped."""
    return _encode(batch_id=batch_id, rows=rows)


def transaction_to_json(transaction: SinkTransaction) -> dict[str, Any]:
    """Return a transaction as the plain values that JSON takes."""
    written = transaction.written
    return {
        **transaction._asdict(),
        "partitions": [list(each) for each in transaction.partitions],
        "written": None if written is None else [list(each) for each in written],
    }


def transaction_from_json(document: Mapping[str, Any]) -> SinkTransaction:
    """Return a transaction from `transaction_to_json`; raises KeyError, TypeError, ValueError on others."""
    return SinkTransaction(
        _whole(document, "partition"),
        _whole(document, "attempt"),
        _text(document, "transactional_id"),
        _whole(document, "producer_id"),
        _whole(document, "producer_epoch"),
        tuple(TopicPartition(_is_text(topic), _is_whole(number)) for topic, number in document["partitions"]),
        _whole(document, "records"),
        _whole(document, "started_ms"),
        _whole(document, "timeout_ms"),
        _written(document.get("written")),
        _text(document, "digest") if document.get("digest") is not None else None,
    )


def decode_ledger(data: bytes | None) -> Ledger | Broken:
    """Return what is in `ledger.json`; None is a file that is not there."""
    return _decode(LEDGER, data, _ledger)


def decode_generation(number: int, data: bytes | None) -> Generation | Broken:
    """Return what is in the file of a generation."""
    return _decode(generation_name(number), data, lambda document: _generation(number, document))


def decode_decision(which: Round, data: bytes | None) -> Decision | Broken:
    """Return what is in the file of a decision; one of another batch than its name is broken."""
    return _decode(decision_name(which), data, lambda document: _decision(which, document))


def decode_completion(which: Round, data: bytes | None) -> Done | Broken:
    """Return what is in the file that marks how a decision was carried out."""
    return _decode(completion_name(which), data, lambda document: _done(which, document))


def decode_dropped(batch_id: int, data: bytes | None) -> int | Broken:
    """Return how many rows a batch dropped."""
    return _decode(dropped_name(batch_id), data, lambda document: _dropped(batch_id, document))


def decode_folder(path: str, files: Mapping[str, bytes | None]) -> LedgerState:
    """Return a whole ledger from its files' contents by name; `path` is shown to people."""
    names = read_names(files)
    decisions = [decode_decision(each, files[decision_name(each)]) for each in names.decisions]
    done = [decode_completion(each, files[completion_name(each)]) for each in names.done]
    dropped = {each: decode_dropped(each, files[dropped_name(each)]) for each in names.dropped}
    newest = names.generations[-1] if names.generations else None
    claimed = None if newest is None else decode_generation(newest, files[generation_name(newest)])
    return LedgerState(
        path,
        decode_ledger(files.get(LEDGER)),
        newest,
        claimed.run_id if isinstance(claimed, Generation) else "",
        tuple(each for each in decisions if isinstance(each, Decision)),
        tuple(each for each in done if isinstance(each, Done)),
        tuple(each for each in (*decisions, *done, *dropped.values(), claimed) if isinstance(each, Broken)),
        {batch_id: rows for batch_id, rows in dropped.items() if isinstance(rows, int)},
    )


def _encode(**fields: Any) -> bytes:
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":"), ensure_ascii=False).encode()


def _decode(name: str, data: bytes | None, read: Callable[[Mapping[str, Any]], T]) -> T | Broken:
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
        return read(document)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Broken(path, Damage.TORN, f"it is no file of a ledger ({type(error).__name__}: {error})")


def _ledger(document: Mapping[str, Any]) -> Ledger:
    return Ledger(
        _text(document, "ledger_id"),
        _text(document, "query_id"),
        _text(document, "prefix"),
        _whole(document, "created_ms"),
        _whole(document, "first_batch"),
    )


def _generation(number: int, document: Mapping[str, Any]) -> Generation:
    _same(document, generation=number)
    return Generation(number, _text(document, "run_id"), _whole(document, "at_ms"))


def _decision(which: Round, document: Mapping[str, Any]) -> Decision:
    _same(document, batch_id=which.batch_id, round=which.round)
    return Decision(
        which.batch_id,
        which.round,
        Decided(document["decided"]),
        _text(document, "by"),
        _whole(document, "at_ms"),
        _text(document, "ledger_id"),
        _text(document, "query_id"),
        _text(document, "run_id"),
        _whole(document, "generation"),
        tuple(transaction_from_json(each) for each in document["transactions"]),
        tuple(_input_range(each) for each in document["input"]),
        _text(document, "reason"),
    )


def _done(which: Round, document: Mapping[str, Any]) -> Done:
    _same(document, batch_id=which.batch_id, round=which.round)
    lost = tuple(_is_text(each) for each in document["lost"])
    return Done(
        which.batch_id,
        which.round,
        DecisionOutcome(document["outcome"]),
        _whole(document, "at_ms"),
        _text(document, "by"),
        lost,
    )


def _dropped(batch_id: int, document: Mapping[str, Any]) -> int:
    _same(document, batch_id=batch_id)
    return _whole(document, "rows")


def _written(document: Any) -> tuple[PartitionRecords, ...] | None:
    if document is None:
        return None
    return tuple(PartitionRecords(_is_text(topic), *map(_is_whole, numbers)) for topic, *numbers in document)


def _input_range(document: Mapping[str, Any]) -> InputRange:
    start, end = (None if document[key] is None else _text(document, key) for key in ("start", "end"))
    return InputRange(_text(document, "source"), start, end)


def _same(document: Mapping[str, Any], **expected: int) -> None:
    for key, value in expected.items():
        if _whole(document, key) != value:
            raise ValueError(f"its {key} is {document[key]}, by its name it is {value}")


def _text(document: Mapping[str, Any], key: str) -> str:
    return _is_text(document[key])


def _whole(document: Mapping[str, Any], key: str) -> int:
    return _is_whole(document[key])


def _is_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def _is_whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
