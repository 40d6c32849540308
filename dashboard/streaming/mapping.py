"""Map an observed checkpoint to the columns of the tables, without reading the database.

`Query.detail` has the fields that no SQL query filters by:

    conf        the session's configuration that a restart takes over
    sources     [{"source", "offset": JSON text or null, "info": {…}}] of the newest planned batch
    initial     {source: {topic: {partition: offset}}}: where each Kafka source began
    operators   [{"operator_id", "name", "stores": [{"name", "partitions"}]}]
    broken      [{"path", "damage", "detail"}], foreign: [names]
    versions    {"offsets", "commits"}: formats of the newest files
    control     the effect of a control batch without data, "" for all other batches
    asynchronous  whether its listener has reported asynchronous progress tracking
    has_state   whether `state/` has files
    kept        {"offsets": [first, last], "commits": …}: the batches in its logs
    restart     {"first_batch", "severity", "remedy"} beside the columns `predict_restart` and `restart_words`
    ledger      {"path", "broken", "created_ms", "first_batch", "run_id", "seen"}, or null without one
    gone        true if the folder was deleted
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dashboard.models import Query
from fenceline.decode.ledger import transaction_to_json
from fenceline.spark.records import (
    Broken,
    Checkpoint,
    CheckpointObservation,
    CommitsEntry,
    Decided,
    Decision,
    Done,
    Ledger,
    LedgerState,
    OffsetsEntry,
    Positions,
)
from fenceline.spark.restart_prediction import Restart, predict_restart
from fenceline.spark.safe_to_restart import EXACTLY_ONCE

#: Columns of a decision that are its fields.
_OF_DECISION = ("batch_id", "round", "decided", "generation", "reason", "input")


def query_columns(observation: CheckpointObservation, row: Query, *, alive: bool | None) -> Mapping[str, Any]:
    """Return the columns of a query from one poll, except its time and errors."""
    checkpoint, ledger = observation.checkpoint, observation.ledger
    asynchronous = bool(row.asynchronous)
    verdict = predict_restart(checkpoint, alive=alive, asynchronous=asynchronous)
    entry = checkpoint.last_offsets
    known = ledger.ledger if ledger is not None and isinstance(ledger.ledger, Ledger) else None
    decisions = ledger.open_decisions() if ledger is not None else ()
    prepared = [decision for decision in decisions if decision.decided is Decided.PREPARED]
    expiries = [transaction.expires_ms for decision in prepared for transaction in decision.transactions]
    return {
        "query_id": checkpoint.query_id or row.query_id,
        "planned": checkpoint.newest_planned,
        "finished": checkpoint.newest_finished,
        "planned_ms": (entry.planned_ms if isinstance(entry, OffsetsEntry) else None)
        or checkpoint.offsets_ms,
        "finished_ms": checkpoint.commits_ms,
        "restart": str(verdict.verdict),
        "restart_words": verdict.sentence,
        "sink": EXACTLY_ONCE if ledger is not None else row.sink,
        "ledger_id": known.ledger_id if known else row.ledger_id,
        "prefix": known.prefix if known else row.prefix,
        "generation": ledger.generation if ledger is not None else row.generation,
        "prepared": len(prepared) if ledger is not None else row.prepared,
        "expires_ms": min(expiries, default=None) if ledger is not None else row.expires_ms,
        "detail": checkpoint_detail(observation, verdict, asynchronous=asynchronous),
    }


def checkpoint_detail(
    observation: CheckpointObservation, verdict: Restart, *, asynchronous: bool
) -> dict[str, Any]:
    """Return the JSON for the inspector."""
    checkpoint = observation.checkpoint
    offsets, commits = checkpoint.last_offsets, checkpoint.last_commit
    return {
        **_of_offsets(offsets if isinstance(offsets, OffsetsEntry) else None),
        "initial": {source: _packed_positions(at) for source, at in sorted(checkpoint.initial.items())},
        "operators": [
            {
                "operator_id": operator.operator_id,
                "name": operator.name,
                "stores": [{"name": name, "partitions": partitions} for name, partitions in operator.stores],
            }
            for operator in checkpoint.operators
        ],
        "broken": _packed_broken(_broken(checkpoint)),
        "foreign": list(checkpoint.foreign),
        "versions": {
            "offsets": offsets.version if isinstance(offsets, OffsetsEntry) else None,
            "commits": commits.version if isinstance(commits, CommitsEntry) else None,
        },
        "asynchronous": asynchronous,
        "has_state": checkpoint.has_state,
        "kept": {"offsets": _ends(checkpoint.offsets), "commits": _ends(checkpoint.commits)},
        "restart": {
            "first_batch": verdict.first_batch,
            "severity": verdict.severity,
            "remedy": verdict.remedy,
        },
        "ledger": observation.ledger and _of_ledger(observation.ledger),
    }


def planned_rows(query: Query, entries: Iterable[OffsetsEntry], rev: int) -> Sequence[Mapping[str, Any]]:
    """Return the columns of batches from `offsets/N`."""
    return [
        {
            "query_id": query.pk,
            "batch_id": entry.batch_id,
            "planned_ms": entry.planned_ms,
            "watermark_ms": entry.watermark_ms,
            "offsets": [[source.source, source.raw] for source in entry.sources],
            "rev": rev,
        }
        for entry in entries
    ]


def finished_rows(
    query: Query, entries: Iterable[CommitsEntry], at_ms: Mapping[int, int], rev: int, now_ms: int
) -> Sequence[Mapping[str, Any]]:
    """Return the columns of batches from `commits/N`; a batch without a time gets the current time."""
    return [
        {
            "query_id": query.pk,
            "batch_id": entry.batch_id,
            "committed_ms": at_ms.get(entry.batch_id, now_ms),
            "next_watermark_ms": entry.next_watermark_ms,
            "rev": rev,
        }
        for entry in entries
    ]


def decision_states(ledger: LedgerState) -> Mapping[tuple[int, int], tuple[str, str]]:
    """Return the state of each decision of a ledger, by batch and round: the decision and its outcome."""
    done = {(ended.batch_id, ended.round): ended.outcome.value for ended in ledger.done}
    return {
        (decision.batch_id, decision.round): (
            decision.decided.value,
            done.get((decision.batch_id, decision.round), ""),
        )
        for decision in ledger.decisions
    }


def decision_rows(
    query: Query, ledger: LedgerState, wanted: Collection[tuple[int, int]]
) -> Sequence[Mapping[str, Any]]:
    """Return the columns of the wanted decisions of a ledger (batch and round), with their outcome."""
    done = {(ended.batch_id, ended.round): ended for ended in ledger.done}
    return [
        _decision(query, decision, done.get((decision.batch_id, decision.round)))
        for decision in ledger.decisions
        if (decision.batch_id, decision.round) in wanted
    ]


def ledger_fingerprint(ledger: LedgerState) -> str:
    """Return a short text that changes with every new decision in a ledger, and with every outcome."""
    return hashlib.sha256(repr(sorted(decision_states(ledger).items())).encode()).hexdigest()[:16]


def _decision(query: Query, decision: Decision, done: Done | None) -> Mapping[str, Any]:
    return {
        "query_id": query.pk,
        **{name: getattr(decision, name) for name in _OF_DECISION},
        "by": decision.by[:16],
        "run_id": decision.run_id[:36],
        "decided_ms": decision.at_ms,
        "transactions": [transaction_to_json(transaction) for transaction in decision.transactions],
        "outcome": "" if done is None else done.outcome.value,
        "done_ms": None if done is None else done.at_ms,
        "done_by": "" if done is None else done.by[:16],
        "lost": [] if done is None else list(done.lost),
    }


def _of_offsets(entry: OffsetsEntry | None) -> dict[str, Any]:
    if entry is None:
        return {"conf": {}, "sources": [], "control": ""}
    return {
        "conf": dict(sorted(entry.conf.items())),
        "sources": [
            {
                "source": source.source,
                "offset": source.raw,
                "info": dict(entry.source_info.get(source.source, {})),
            }
            for source in entry.sources
        ],
        "control": entry.control,
    }


def _of_ledger(ledger: LedgerState) -> dict[str, Any]:
    known = ledger.ledger if isinstance(ledger.ledger, Ledger) else None
    return {
        "path": ledger.path,
        "broken": _packed_broken([ledger.ledger, *ledger.broken]),
        "created_ms": known.created_ms if known else None,
        "first_batch": known.first_batch if known else None,
        "run_id": ledger.run_id,
        "seen": ledger_fingerprint(ledger),
    }


def _broken(checkpoint: Checkpoint) -> Iterable[Broken]:
    """Return the distinct broken files of a checkpoint."""
    entries = checkpoint.previous_offsets, checkpoint.last_offsets, checkpoint.last_commit
    files = (checkpoint.identity, *entries, *checkpoint.broken)
    return dict.fromkeys(file for file in files if isinstance(file, Broken))


def _packed_broken(files: Iterable[object]) -> list[dict[str, Any]]:
    """Return the broken ones among files."""
    return [file._asdict() | {"damage": file.damage.value} for file in files if isinstance(file, Broken)]


def _packed_positions(positions: Positions) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(number)] = offset
    return by_topic


def _ends(ids: Sequence[int]) -> list[int]:
    return [ids[0], ids[-1]] if ids else []
