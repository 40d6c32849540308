"""The packed state of an id between two micro-batches: `fold.Newest` -> bytes -> `fold.Prior`.

About 90 bytes per id: the plain fields of its last record and its newest transition, all that the fold needs
to interpret the next record. An id that the coordinator forgot keeps its expiry.
"""

from __future__ import annotations

from struct import Struct

from fenceline.decode.transaction_state import STATES
from fenceline.facts import NOT_FROM_LOG, TransactionRecord
from fenceline.kafka.fold import transition_ring
from fenceline.kafka.fold.folded import Newest, Prior

#: Its status, state, producer id, epoch, timeout, last update, start (-1: none), client version, offset.
_KNOWN = Struct(">BBqhiqqhq")
_KNOWN_ID, _LOST_ID, _FORGOTTEN_ID = range(3)
#: Its status, and when it expired.
_FORGOTTEN = Struct(">Bq")
_CODES = {state: code for code, state in enumerate(STATES)}


def pack_prior(newest: Newest) -> bytes:
    """Pack the state of an id that the fold needs to interpret its next record."""
    last = newest.packed[: transition_ring.SIZE]
    record = newest.record
    if record is None:
        return _FORGOTTEN.pack(_FORGOTTEN_ID, newest.expired_ms or 0) + last
    started_ms = -1 if record.started_ms is None else record.started_ms
    standing = _LOST_ID if newest.offset == NOT_FROM_LOG else _KNOWN_ID
    return _KNOWN.pack(
        standing, _CODES[record.state], record.producer_id, record.producer_epoch, record.timeout_ms,
        record.updated_ms, started_ms, record.client_version, newest.offset,
    ) + last  # fmt: skip


def pack_lost(packed: bytes) -> bytes:
    """Pack the state after an undecodable record: the next record has no known predecessor."""
    return packed if packed[0] == _FORGOTTEN_ID else bytes([_LOST_ID]) + packed[1:]


def unpack_prior(packed: bytes) -> Prior:
    """Unpack the state in the form that `fold` takes."""
    if packed[0] == _FORGOTTEN_ID:
        last = packed[_FORGOTTEN.size :]
        return Prior(offset=transition_ring.expiry_offset(last), packed=last)
    standing, code, producer_id, epoch, timeout_ms, updated_ms, started_ms, version, offset = (
        _KNOWN.unpack_from(packed)
    )
    state, last = STATES[code], packed[_KNOWN.size :]
    if standing == _LOST_ID:
        return Prior(state, packed=last)
    started = None if started_ms == -1 else started_ms
    record = TransactionRecord(
        "", state, producer_id, epoch, timeout_ms, None, updated_ms, started, version
    )  # fmt: skip
    return Prior(state, record, offset, last)


def expired_ms(packed: bytes) -> int | None:
    """Return the instant at which the coordinator forgot the id, None for a present id."""
    return _FORGOTTEN.unpack_from(packed)[1] if packed[0] == _FORGOTTEN_ID else None
