"""The last transitions of an id, packed: 47 bytes each, newest first, at most 20.

They are packed instead of rows because the intake writes them for every changed id. The partition is not
packed: an id has only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from fenceline.facts import NOT_FROM_LOG, Confidence, Transition, TransitionKind, TransitionReason

MOST = 20
#: Kind, confidence, reason; instant, producer id; epoch, the one before; timeout, open for, completed
#: after, gap; offset.
_ENTRY = Struct(">BBBqqhhiiiiq")
SIZE = _ENTRY.size

_KINDS, _CONFIDENCES, _REASONS = tuple(TransitionKind), tuple(Confidence), tuple(TransitionReason)
_KIND_CODES = {kind: code for code, kind in enumerate(_KINDS)}
_CONFIDENCE_CODES = {confidence: code for code, confidence in enumerate(_CONFIDENCES)}
_REASON_CODES = {reason: code for code, reason in enumerate(_REASONS)}
#: The code of None among the durations, and the longest duration that fits, in milliseconds: 24 days.
NONE = -(2**31)
LONGEST_MS = 2**31 - 1
_SHORTEST_MS = NONE + 1

#: Packs the fields of an entry from plain numbers, in its order: for callers without a Transition.
pack_plain = _ENTRY.pack


def kind_codes(
    kind: TransitionKind, confidence: Confidence, reason: TransitionReason
) -> tuple[int, int, int]:
    """Return the first three fields of an entry."""
    return _KIND_CODES[kind], _CONFIDENCE_CODES[confidence], _REASON_CODES[reason]


def pack_ring(newest_first: Sequence[bytes], older: bytes = b"") -> bytes:
    """Put entries before `older` (packed by `pack_ring`), cut to the last 20."""
    return (b"".join(newest_first[:MOST]) + older)[: MOST * SIZE]


def unpack_ring(packed: bytes, partition: int) -> tuple[Transition, ...]:
    """Unpack the transitions of an id in `partition`, newest first."""
    return tuple(_transition(fields, partition) for fields in _ENTRY.iter_unpack(packed))


def newest_transition(packed: bytes, partition: int) -> Transition | None:
    """Unpack only the newest transition."""
    return _transition(_ENTRY.unpack_from(packed), partition) if packed else None


def expiry_offset(packed: bytes) -> int:
    """Return the offset of the id's expiry, NOT_FROM_LOG if its newest transition is no expiry.

    Holes before an expiry do not affect later records.
    """
    newest = newest_transition(packed, 0)
    return newest.offset if newest and newest.kind is TransitionKind.EXPIRY else NOT_FROM_LOG


def pack_entry(transition: Transition) -> bytes:
    """Pack one transition. Durations over 24 days are cut to 24 days."""
    completed = None if transition.completed_ms is None else transition.completed_ms - transition.at_ms
    return _ENTRY.pack(
        *kind_codes(transition.kind, transition.confidence, transition.reason),
        transition.at_ms,
        transition.producer_id,
        transition.producer_epoch,
        -1 if transition.previous_epoch is None else transition.previous_epoch,
        transition.timeout_ms,
        _span(transition.open_ms),
        _span(completed),
        _span(transition.gap_ms),
        transition.offset,
    )


def _span(ms: int | None) -> int:
    return NONE if ms is None else min(max(ms, _SHORTEST_MS), LONGEST_MS)


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
        None if opened == NONE else opened,
        None if done == NONE else at_ms + done,
        None if gap == NONE else gap,
        partition,
        offset,
    )
