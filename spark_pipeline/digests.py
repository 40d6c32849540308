"""A digest of records in any order: sent records and the records that are read back have the same digest.

Each record has two 64-bit hashes of key and value (xxhash64, by Spark in the JVM), each summed modulo 2^64.
Sums of parts add up to the sum of the whole, and show a missing, doubled or changed record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from fenceline.compat import zip_equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns of the two hashes, which the sink adds to its rows and does not write.
_COLUMNS = ("_fenceline_digest_1", "_fenceline_digest_2")
_MODULUS = 1 << 64


def with_digests(rows: DataFrame) -> DataFrame:
    """Return rows of the sink, or of Kafka's source, with the two hashes of each, of text as bytes.

    The second hash tells a null key from a null value.
    """
    nothing = f.lit(None)
    key, value = (
        (f.col(name) if name in rows.columns else nothing).cast("binary") for name in ("key", "value")
    )
    hashes = f.xxhash64(key, value), f.xxhash64(value, key, key.isNull())
    return rows.withColumns(dict(zip_equal(_COLUMNS, hashes)))


class RunningDigest:
    def __init__(self) -> None:
        self._sums: list[int] | None = None

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield Arrow batches; add the hashes of batches that have the columns of `with_digests`."""
        for batch in batches:
            if set(_COLUMNS) <= set(batch.schema.names):
                sums = [_sum(batch.column(name)) for name in _COLUMNS]
                self._sums = [sum(pair) for pair in zip_equal(self._sums or [0, 0], sums)]
            yield batch

    @property
    def as_hex(self) -> str | None:
        """Return the digest so far; None without any hashes."""
        return None if self._sums is None else "".join(f"{total % _MODULUS:016x}" for total in self._sums)


def _sum(column: Any) -> int:
    import pyarrow.compute as pc

    # Sums of int64 wrap around, as the digest requires.
    return pc.sum(column).as_py() or 0
