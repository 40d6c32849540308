"""Proves how a database error is explained, and which writes are repeated: deadlocks, from their start;
that many rows are written alike (values, order, repeats), and how rows are read without the ORM."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.models import QuerySet

from dashboard.models import Cluster, GroupRecord, PartitionRecord
from dashboard.models.collecting import visible_clusters
from dashboard.runtime import database_errors, write_transactions
from dashboard.runtime.database_errors import Explanation, RepeatedInVain, explain_error, log_line
from dashboard.runtime.sql import (
    COPIED_ROWS,
    Row,
    Upsert,
    overwrite_changes,
    prepared,
    read_rows,
    write_rows,
)
from dashboard.runtime.write_transactions import PAUSES_S, retry_write
from tests.cases import cases
from tests.sql import switch_database

pytestmark = pytest.mark.sql
#: SQLSTATEs are PostgreSQL's.
postgresql = pytest.mark.sql("postgresql")


class Ended(Exception):
    """What a driver raises, with PostgreSQL's code."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"ended with {sqlstate}")
        self.sqlstate = sqlstate


def error(sqlstate: str) -> OperationalError:
    """Return Django's error for one of the driver's."""
    found = OperationalError("the server's own words")
    found.__cause__ = Ended(sqlstate)
    return found


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as outside of a transaction: tests are within one."""
    monkeypatch.setattr(write_transactions, "connection", type("", (), {"in_atomic_block": False}))
    monkeypatch.setattr(write_transactions.time, "sleep", lambda seconds: None)


@cases(
    ("40P01", "to resolve a deadlock"),
    ("40001", "could not order this write"),
    ("55P03", "lock_timeout"),
    ("57014", "statement_timeout"),
    ("25P03", "idle_in_transaction_session_timeout"),
    ("53300", "max_connections"),
    ("53100", "disk is full"),
    ("25006", "takes no writes"),
    ("28P01", "refuses the sign-in"),
    ("3D000", "does not exist"),
    ("42501", "may not do this"),
    ("42P01", "manage.py prepare"),
    ("42703", "manage.py prepare"),
    ("57P01", "cannot be reached"),
    ("57P03", "cannot be reached"),
    ("08006", "cannot be reached"),
    ("53400", "has run out of a resource"),
    ("", "cannot be reached"),
    ("58030", "system of the database's server"),
)
def test_each_error_has_its_own_text(sqlstate: str, said: str) -> None:
    explanation = explain_error(error(sqlstate))
    assert said in explanation.text
    assert explanation.status == 503
    assert "the server's own words" not in explanation.text
    assert "the server's own words" in log_line(error(sqlstate))
    texts = list(database_errors._POSTGRESQL.values())
    assert len(set(texts)) == len(texts), "codes share a text only if they mean the same"


@pytest.mark.parametrize("kind", [IntegrityError, DatabaseError])
def test_a_permanent_error_is_an_internal_error(kind: type[DatabaseError]) -> None:
    found = kind("duplicate key")
    found.__cause__ = Ended("23505")
    assert explain_error(found).status == 500
    assert "duplicate key" not in explain_error(found).text


def sqlite_explanation(opened: sqlite3.Connection, statement: str, *values: str) -> Explanation:
    """Return what is said of the error that SQLite answers, which Django wraps."""
    with closing(opened), pytest.raises(sqlite3.Error) as raised:
        opened.execute(statement, values).fetchall()
    found = OperationalError(str(raised.value))
    found.__cause__ = raised.value
    return explain_error(found)


def test_errors_of_a_sqlite_file_are_not_called_unreachable(tmp_path: Path) -> None:
    path = tmp_path / "fenceline.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("CREATE TABLE t (a)")
        holder.execute("BEGIN IMMEDIATE")
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        assert "locked" in sqlite_explanation(other, "BEGIN IMMEDIATE").text
    path.write_bytes(b"no database" * 1_000)
    assert "is not a database" in sqlite_explanation(sqlite3.connect(path), "SELECT 1 FROM t").text
    missing = sqlite_explanation(sqlite3.connect(":memory:"), "SELECT 1 FROM dashboard_cluster")
    assert "manage.py prepare" in missing.text


@cases(
    ("SELECT 1 WHERE 'a' LIKE ? ESCAPE '\\'", "x" * 900 + "%"),
    ("SELECT ?", "x" * 2_000),
    ("SELEC ?", ""),
)
def test_an_unknown_error_of_sqlite_is_not_called_unreachable(statement: str, value: str) -> None:
    opened = sqlite3.connect(":memory:")
    opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000)
    opened.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
    explanation = sqlite_explanation(opened, statement, value)
    assert explanation.status == 500
    assert "cannot be reached" not in explanation.text
    assert "Try again" not in explanation.text


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_called_unreachable() -> None:
    texts = []
    for _ in range(2):  # The first has the server's code, the second finds the connection closed.
        with pytest.raises((OperationalError, InterfaceError)) as raised, connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        texts.append(explain_error(raised.value).text)
    connection.close()
    assert all("cannot be reached" in text for text in texts)


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_server_that_does_not_answer_is_called_unreachable() -> None:
    away = connections.configure_settings({"default": {**connections.settings["default"], "PORT": "1"}})
    with switch_database(away["default"]), pytest.raises(OperationalError) as raised:
        connection.ensure_connection()
    assert "cannot be reached" in explain_error(raised.value).text


def failing(sqlstate: str) -> tuple[Callable[[], None], list[int]]:
    """Return a write that always ends with an error, and a list that gets a number for each run."""
    runs: list[int] = []

    @retry_write
    def write() -> None:
        runs.append(1)
        raise error(sqlstate)

    return write, runs


@pytest.mark.parametrize("sqlstate", ["55P03", "57014", "08006", "23505", ""])
def test_no_other_error_is_repeated(outside: None, sqlstate: str) -> None:
    write, runs = failing(sqlstate)
    with pytest.raises(OperationalError):
        write()
    assert len(runs) == 1


@pytest.mark.django_db
def test_within_a_transaction_nothing_is_repeated() -> None:
    write, runs = failing("40P01")
    with transaction.atomic(), pytest.raises(OperationalError):
        write()
    assert len(runs) == 1, "the caller's transaction is over: it has to be repeated as a whole"


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
def test_a_write_ended_by_a_deadlock_is_repeated_from_its_start(
    outside: None, sqlstate: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []

    @retry_write
    def write(word: str) -> str:
        runs.append(word)
        if len(runs) < 3:
            raise error(sqlstate)
        return "saved"

    assert write("a") == "saved"
    assert runs == ["a", "a", "a"]
    assert caplog.text.count("it is repeated") == 2


def test_a_write_is_given_up_after_its_last_repeat(outside: None) -> None:
    write, runs = failing("40P01")
    with pytest.raises(RepeatedInVain, match="6 times to resolve a deadlock: nothing was saved") as raised:
        write()
    assert len(runs) == len(PAUSES_S) + 1
    assert explain_error(raised.value).text == str(raised.value)
    assert explain_error(raised.value).status == 503


@postgresql
@pytest.mark.django_db(transaction=True)
@cases(
    ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(5)", "statement_timeout"),
    ("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$", "to resolve a deadlock"),
    ("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '55P03'; END $$", "lock_timeout"),
    ("SET LOCAL transaction_read_only = on; DELETE FROM dashboard_cluster", "takes no writes"),
    ("SELECT 1 FROM no_such_table", "manage.py prepare"),
)
def test_errors_of_the_server_are_explained(statement: str, said: str) -> None:
    with pytest.raises(DatabaseError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert said in explain_error(raised.value).text


@postgresql
@pytest.mark.django_db(transaction=True)
def test_a_real_deadlock_error_is_repeated_in_a_new_transaction() -> None:
    runs: list[int] = []

    @retry_write
    def write() -> int:
        with transaction.atomic(), connection.cursor() as cursor:
            runs.append(1)
            if len(runs) == 1:
                cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$")
            cursor.execute("SELECT 7")
            return int(cursor.fetchone()[0])

    assert write() == 7
    assert len(runs) == 2


KEY = ("cluster_id", "topic", "partition")
#: What the text format of COPY has its own signs for.
TEXTS = ("", "\\N", "a\tb", "a\nb", "a\r\nb", "\\.", "\\", "größe", "'%s'", "{}")
COLUMNS = ("cluster_id", "key", "group_id", "members", "log_partition", "log_offset")
UPSERT = Upsert(GroupRecord._meta.db_table, COLUMNS, COLUMNS[:2], overwrite_changes(COLUMNS[2:]))


def partitions(number: int, text: str, lso: int | None = None) -> list[Mapping[str, Any]]:
    cluster = Cluster.objects.get().pk
    return [
        {
            "cluster_id": cluster, "topic": "orders", "partition": partition, "replicas": [1, 2], "lso": lso,
            "error": text, "rev": 1,
        }
        for partition in reversed(range(number))
    ]  # fmt: skip


def groups(number: int, offset: int = 0) -> list[Row]:
    cluster = Cluster.objects.get().pk
    return [
        (cluster, bytes([at % 256, at // 256, 92, 255]), f"group-{at}", "", 1, offset + at)
        for at in range(number)
    ]


class StoppedRows(list[Row]):
    """Rows whose writer stops before the last one, until `goes_on` returns."""

    def __init__(self, rows: list[Row], goes_on: Callable[[], object]) -> None:
        super().__init__(rows)
        self._goes_on = goes_on

    def __iter__(self) -> Iterator[Row]:
        yield from self[:-1]
        self._goes_on()
        yield self[-1]


@postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [1, 4_000], ids=["statement", "copy"])
def test_a_session_that_stops_amid_a_write_loses_its_locks(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(write_transactions, "IDLE_MS", 300)
    rows = groups(number)
    connection.close()
    with closing(connections.create_connection("default")) as other, other.cursor() as cursor:
        cursor.execute("SET lock_timeout = '20s'")

        def write() -> None:
            with transaction.atomic():
                Cluster.objects.update(rev=7)
                UPSERT.write(
                    StoppedRows(rows, partial(cursor.execute, "UPDATE dashboard_cluster SET rev = 8"))
                )

        with pytest.raises(DatabaseError) as raised:
            write()
    connection.close()
    assert explain_error(raised.value).is_passing
    assert Cluster.objects.get().rev == 8


@pytest.mark.parametrize("number", [4_000, COPIED_ROWS, COPIED_ROWS - 1, 1])
def test_rows_are_inserted_in_their_order_then_overwritten(number: int) -> None:
    for lso, text in enumerate(TEXTS):
        write_rows(PartitionRecord, partitions(number, text, lso or None), KEY)
        rows = PartitionRecord.objects.values_list("error", "lso", "replicas", "leader").distinct()
        assert list(rows) == [(text, lso or None, [1, 2], None)]
    places = PartitionRecord.objects.order_by("id").values_list("partition", flat=True)
    assert list(places) == list(range(number))


def test_rows_of_a_statement_that_is_repeated_in_a_transaction_are_written_once() -> None:
    UPSERT.write(groups(COPIED_ROWS))
    GroupRecord.objects.all().delete()
    UPSERT.write(groups(COPIED_ROWS, 7)[5:] + groups(5, 9))
    rows = GroupRecord.objects.order_by("key").values_list("key", "log_offset")
    assert [(bytes(key), offset) for key, offset in rows] == [
        (bytes([at, 0, 92, 255]), at + (9 if at < 5 else 7)) for at in range(COPIED_ROWS)
    ]


# Both databases copy the first number of rows before they insert them.
@pytest.mark.parametrize("number", [600, COPIED_ROWS, 9])
def test_rows_may_be_staged_and_share_their_first_values(number: int) -> None:
    for offset in 0, 7:
        whole = groups(number, offset)
        staged = UPSERT.stage([row[1:] for row in whole])
        UPSERT.write(staged, whole[0][:1])
        rows = GroupRecord.objects.values_list(*COLUMNS)
        assert sorted((cluster, bytes(key), *others) for cluster, key, *others in rows) == sorted(whole)


@pytest.mark.django_db(transaction=True)
def test_rows_outside_a_transaction_are_written_too() -> None:
    for number in (COPIED_ROWS, 2 * COPIED_ROWS):
        UPSERT.write(groups(number))
        assert GroupRecord.objects.count() == number
        with transaction.atomic():
            UPSERT.write(groups(number))


@pytest.mark.parametrize("number", [COPIED_ROWS, 1])
def test_a_row_that_the_table_refuses_is_djangos_error_and_no_rows_are_no_statement(number: int) -> None:
    broken = [(*row[:2], None, *row[3:]) for row in groups(number)]
    with pytest.raises(IntegrityError), transaction.atomic():
        UPSERT.write(broken)
    UPSERT.write([])
    assert not GroupRecord.objects.exists()


def test_rows_are_read_by_values_and_lists_of_values() -> None:
    UPSERT.write(groups(4))
    keys = [bytes([at, 0, 92, 255]) for at in (1, 3, 9)]
    read = read_rows(GroupRecord, ("group_id", "log_offset"), key=keys, log_partition=1)
    assert sorted(read) == [("group-1", 1), ("group-3", 3)]
    assert read_rows(GroupRecord, ["group_id"], key=keys, log_partition=2) == []
    assert read_rows(GroupRecord, ["group_id"], key=[], log_partition=1) == []


def test_a_prepared_query_reads_the_present_rows_of_its_keys_within_the_callers_limit() -> None:
    write_rows(PartitionRecord, partitions(3, "100% 'new'"), KEY)
    built = []

    @prepared
    def rows_after(partition: int) -> QuerySet[PartitionRecord]:
        built.append(partition)
        return PartitionRecord.objects.filter(partition__gt=partition).order_by("partition")

    assert [row.partition for row in rows_after(0)] == [1, 2]
    PartitionRecord.objects.filter(partition=1).delete()
    assert [(row.partition, row.replicas, row.error) for row in rows_after(0)] == [(2, [1, 2], "100% 'new'")]
    assert [row.partition for row in rows_after(2)] == []
    assert built == [0, 2], "its SQL is built once for the same keys"
    token = visible_clusters.set(frozenset())
    assert rows_after(0) == []
    visible_clusters.reset(token)
    assert [row.partition for row in rows_after(0)] == [2]
