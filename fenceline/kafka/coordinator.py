"""Where a transactional id lives: the way from its name to its partition of `__transaction_state`."""

from __future__ import annotations

from fenceline.compat import zip_equal

#: `transaction.state.log.num.partitions` of a cluster without a setting of its own.
DEFAULT_PARTITIONS = 50


def partition_for(name: bytes, partitions: int = DEFAULT_PARTITIONS) -> int:
    """Return the partition of `__transaction_state` that holds a transactional id (raw bytes, not escaped).

    The same rule places a consumer group in `__consumer_offsets`. It is Java's: the absolute value of
    `String.hashCode()`, where the one hash that has none counts as 0 (`Utils.abs`), modulo the partitions.
    """
    hashed = java_hash(name)
    return (0 if hashed == -(2**31) else abs(hashed)) % partitions


def java_hash(name: bytes) -> int:
    """Return `String.hashCode()` of a name: over its UTF-16 units, wrapped to a signed 32-bit integer."""
    hashed = 0
    units = name.decode(errors="replace").encode("utf-16-be")
    for high, low in zip_equal(units[::2], units[1::2]):
        hashed = (31 * hashed + (high << 8) + low) & 0xFFFFFFFF
    return hashed - 2**32 if hashed & 0x80000000 else hashed
