"""Statements for both SQLite and PostgreSQL.

Written raw: an INSERT … ON CONFLICT is five times bulk_create's speed on SQLite, where one of many rows takes
two thirds of the time of executemany. PostgreSQL takes many rows by COPY, in a quarter of that.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeVar

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import JSONField, Model, QuerySet

T = TypeVar("T")
M = TypeVar("M", bound=Model)
#: Keys of one SQL query: SQLite takes 32,766 parameters, PostgreSQL 65,535.
KEYS_AT_ONCE = 5_000
#: From this number on PostgreSQL takes rows by COPY.
COPIED_ROWS = 20
#: How many rows SQLite takes with one statement. Few sizes: it keeps a prepared statement for each.
_ROWS_AT_ONCE = (512, 64, 8, 1)
#: The values of one statement, in its order.
Row = tuple[int | bytes | str | None, ...]


def portions(items: Iterable[T], most: int = KEYS_AT_ONCE) -> Iterator[list[T]]:
    """Yield items in lists of at most some length."""
    left = iter(items)
    while some := list(islice(left, most)):
        yield some


def in_portions(rows: QuerySet[M], column: str, keys: Iterable[object]) -> Iterator[QuerySet[M]]:
    """Yield the queries for the rows with some keys, a portion of the keys in each."""
    for portion in portions(keys):
        yield rows.filter(**{f"{column}__in": portion})


def write_rows(
    model: type[Model],
    rows: Iterable[Mapping[str, Any]],
    key: Sequence[str],
    *,
    keep: Collection[str] = (),
    merge: Mapping[str, str] | None = None,
) -> None:
    """Insert rows, all of the same columns, or overwrite these columns where the key exists.

    Only new rows get the columns of `keep`, and the model's defaults of all columns that are not given.
    `merge` has the SQL of columns that are not just overwritten. Rows are written in the order of their keys:
    two writers of a table never wait in a circle.
    """
    ordered = sorted(rows, key=itemgetter(*key))
    if not ordered:
        return
    given = tuple(ordered[0])
    upsert = _upsert(model, given, tuple(key), frozenset(keep), tuple((merge or {}).items()))
    packed, others = _json_columns(model), _defaults(model, given).values()
    values = [
        [*(_json_text(row[name]) if name in packed else row[name] for name in given), *others]
        for row in ordered
    ]
    upsert.write(values)


@cache
def _upsert(
    model: type[Model],
    given: tuple[str, ...],
    key: tuple[str, ...],
    keep: frozenset[str],
    merge: tuple[tuple[str, str], ...],
) -> Upsert:
    merged = dict(merge)
    overwritten = [column for column in given if column not in {*key, *keep, *merged}]
    changes = [*overwrite_changes(overwritten), *(f"{column} = {sql}" for column, sql in merge)]
    return Upsert(model._meta.db_table, (*given, *_defaults(model, given)), key, changes)


@cache
def _json_columns(model: type[Model]) -> frozenset[str]:
    return frozenset(field.attname for field in model._meta.concrete_fields if isinstance(field, JSONField))


def _json_text(value: object) -> str | None:
    """Return a value as both databases take it for a column of JSON."""
    return None if value is None else json.dumps(value)


@cache
def _defaults(model: type[Model], given: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the values of a new row's other columns."""
    packed = _json_columns(model)
    return {
        name: _json_text(field.get_default()) if name in packed else field.get_default()
        for field in model._meta.concrete_fields
        if not field.primary_key and (name := field.attname) not in given
    }


@dataclass(frozen=True)
class Upsert:
    """A statement that inserts rows, or makes `changes` where their key exists."""

    table: str
    columns: Sequence[str]
    key: Sequence[str]
    changes: Sequence[str]

    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows in their order; PostgreSQL takes many by COPY within the caller's transaction alone."""
        if not rows:
            return
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                self._write_at_once(cursor, rows)
            elif connection.in_atomic_block and len(rows) >= COPIED_ROWS:
                cursor.execute(self._insert(f"TABLE {self._copy(cursor, rows)}"))
            else:
                cursor.executemany(self._insert(self._values("%s", 1)), rows)

    def _write_at_once(self, cursor: CursorWrapper, rows: Sequence[Sequence[Any]]) -> None:
        """Write many rows with each statement. Other threads of Python go on while one runs."""
        for portion in _of_few_sizes(rows):
            values = list(chain.from_iterable(portion))
            # SQLite's own placeholder: Django would rewrite thousands of the other kind.
            with connection.wrap_database_errors:
                cursor.connection.execute(self._insert(self._values("?", len(portion))), values)

    def _values(self, placeholder: str, rows: int) -> str:
        row = f"({', '.join([placeholder] * len(self.columns))})"
        return f"VALUES {', '.join([row] * rows)}"

    def _insert(self, source: str) -> str:
        return (
            f"INSERT INTO {self.table} ({', '.join(self.columns)}) {source} "
            f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {', '.join(self.changes)}"
        )

    def _copy(self, cursor: CursorWrapper, rows: Sequence[Sequence[Any]]) -> str:
        """Copy rows into a temporary table of this connection; return its name."""
        columns = ", ".join(self.columns)
        copied = f"copied_{zlib.crc32(f'{self.table} {columns}'.encode()):08x}"
        cursor.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {copied} ON COMMIT DELETE ROWS "  # noqa: S608
            f"AS SELECT {columns} FROM {self.table} WITH NO DATA; DELETE FROM {copied}"
        )
        with connection.wrap_database_errors, cursor.copy(f"COPY {copied} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return copied


def _of_few_sizes(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    at = 0
    for size in _ROWS_AT_ONCE:
        while at + size <= len(rows):
            yield rows[at : at + size]
            at += size


def overwrite_changes(columns: Iterable[str]) -> list[str]:
    """Return changes that copy the new row's columns."""
    return [f"{column} = excluded.{column}" for column in columns]
