"""The last transitions of an id, packed: 47 bytes each, newest first, at most 20.

Packed and not rows of their own, since the intake writes them for every id it sees change. The partition is
not in it: an id has but one.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from fenceline.facts import Confidence, Kind, Reason, Transition

MOST = 20
#: Kind, confidence, reason; instant, producer id; epoch, the one before; timeout, open for, completed
#: after, gap; offset.
_ENTRY = Struct(">BBBqqhhiiiiq")
SIZE = _ENTRY.size

_KINDS, _CONFIDENCES, _REASONS = tuple(Kind), tuple(Confidence), tuple(Reason)
_KIND_CODES = {kind: code for code, kind in enumerate(_KINDS)}
_CONFIDENCE_CODES = {confidence: code for code, confidence in enumerate(_CONFIDENCES)}
_REASON_CODES = {reason: code for code, reason in enumerate(_REASONS)}
#: "None" of the durations, and the shortest and longest that fit: 24 days.
_NONE = -(2**31)
_LEAST, _MOST = _NONE + 1, 2**31 - 1


def pack(newest_first: Sequence[Transition], older: bytes = b"") -> bytes:
    """Return transitions before `older`, which `pack` made, cut to the last 20.

    Durations beyond 24 days are cut to that.
    """
    packed = b"".join([_entry(transition) for transition in newest_first[:MOST]])
    return (packed + older)[: MOST * SIZE]


def unpack(packed: bytes, partition: int) -> tuple[Transition, ...]:
    """Return what `pack` packed, newest first, as transitions of an id of that partition."""
    return tuple(_transition(fields, partition) for fields in _ENTRY.iter_unpack(packed))


def newest(packed: bytes, partition: int) -> Transition | None:
    """Return the newest transition alone."""
    return _transition(_ENTRY.unpack_from(packed), partition) if packed else None


def _entry(told: Transition) -> bytes:
    completed = None if told.completed_ms is None else told.completed_ms - told.at_ms
    return _ENTRY.pack(
        _KIND_CODES[told.kind],
        _CONFIDENCE_CODES[told.confidence],
        _REASON_CODES[told.reason],
        told.at_ms,
        told.producer_id,
        told.producer_epoch,
        -1 if told.previous_epoch is None else told.previous_epoch,
        told.timeout_ms,
        _NONE if told.open_ms is None else min(max(told.open_ms, _LEAST), _MOST),
        _NONE if completed is None else min(max(completed, _LEAST), _MOST),
        _NONE if told.gap_ms is None else min(max(told.gap_ms, _LEAST), _MOST),
        told.offset,
    )


def _transition(fields: tuple[int, ...], partition: int) -> Transition:
    kind, confidence, reason, at_ms, producer_id, epoch, before, timeout_ms, opened, done, gap, offset = (
        fields
    )
    return Transition(
        _KINDS[kind],
        _CONFIDENCES[confidence],
        _REASONS[reason],
        at_ms,
        producer_id,
        epoch,
        None if before == -1 else before,
        timeout_ms,
        None if opened == _NONE else opened,
        None if done == _NONE else at_ms + done,
        None if gap == _NONE else gap,
        partition,
        offset,
    )
