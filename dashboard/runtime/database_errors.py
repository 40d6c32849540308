"""Explain database errors to people and logs: PostgreSQL's by SQLSTATE, SQLite's by result code.

SQLSTATEs are from PostgreSQL's "Error Codes" appendix, result codes from SQLite's "Result Codes".
"""

import sqlite3
from typing import NamedTuple

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
)

#: A conflict with another transaction of Fenceline: a retry succeeds.
DEADLOCK, SERIALIZATION = "40P01", "40001"
_OURS = (
    "The database refused a statement, and nothing was saved: this is an error in Fenceline; "
    "its log has the statement's error."
)
_AWAY = "The database cannot be reached: nothing was saved. Try again."


class Explanation(NamedTuple):
    """The explanation of an error, and whether the same request can succeed later."""

    text: str
    is_passing: bool = True

    @property
    def status(self) -> int:
        """Return the HTTP status of a response to this error."""
        return 503 if self.is_passing else 500


#: By SQLSTATE, or by its class, the first two characters.
_POSTGRESQL = {
    DEADLOCK: "The database ended this write to resolve a deadlock: nothing was saved. Try again.",
    SERIALIZATION: (
        "The database could not order this write among others that ran at the same time: nothing was saved. "
        "Try again."
    ),
    "55P03": (
        "Another session of the database has locked rows for longer than lock_timeout allows: nothing was "
        "saved. Look for an open transaction in pg_stat_activity, end it, then try again."
    ),
    "57014": (
        "The database cancelled a statement, usually because it took longer than statement_timeout: nothing "
        "was saved. Try again, or raise statement_timeout for Fenceline's role."
    ),
    "25P03": (
        "The database ended a session that was idle in a transaction for longer than "
        "idle_in_transaction_session_timeout: nothing was saved. Try again."
    ),
    "53300": (
        "The database has no connection left: nothing was saved. Raise max_connections, or run fewer workers."
    ),
    "53100": "The database's disk is full: nothing was saved. Make room on it, then try again.",
    "53": "The database has run out of a resource, and nothing was saved: its log names it.",
    "58": "The system of the database's server has failed, and nothing was saved: its log names the error.",
    "53200": "The database is out of memory: nothing was saved. Try again.",
    "25006": "The database takes no writes, as a standby does: let DATABASE_URL name its primary.",
    "28": "The database refuses the sign-in of DATABASE_URL: correct its user and password.",
    "3D": "The database that DATABASE_URL names does not exist on its server: create it, or correct the URL.",
    "42501": "The database user of DATABASE_URL may not do this: grant it the right, or name the owner.",
}
_NOT_MIGRATED = "The database lacks a table or a column of this version: run `manage.py prepare`."
_SQLITE_LOCKED = (
    "Another process has kept Fenceline's SQLite file locked for longer than this write could wait: nothing "
    "was saved. End that process, or use PostgreSQL where many processes write."
)
#: By the beginning of the result code's name: extended codes begin with their primary code.
_SQLITE = {
    "SQLITE_BUSY": _SQLITE_LOCKED,
    "SQLITE_LOCKED": _SQLITE_LOCKED,
    "SQLITE_FULL": "The disk of Fenceline's SQLite file is full: nothing was saved. Make room on it.",
    "SQLITE_READONLY": "Fenceline's SQLite file cannot be written: give the process the right to write it.",
    "SQLITE_CANTOPEN": "Fenceline's SQLite file cannot be opened: check its folder and the rights on it.",
    "SQLITE_IOERR": "Fenceline's SQLite file cannot be read or written: check its disk.",
    "SQLITE_CORRUPT": "Fenceline's SQLite file is damaged: put a copy of it back.",
    "SQLITE_NOTADB": "Fenceline's SQLite file is not a database: put a copy of it back.",
}


def sqlstate(error: BaseException) -> str:
    """Return PostgreSQL's code of an error; "" without a code, as for a lost connection."""
    return str(getattr(error.__cause__, "sqlstate", None) or "")


def sqlite_code(error: BaseException) -> str:
    """Return the name of SQLite's result code of an error; "" without one."""
    return str(getattr(error.__cause__, "sqlite_errorname", None) or "")


def is_locked(error: BaseException) -> bool:
    """Whether another writer held a lock for longer than this write could wait."""
    return sqlstate(error) == "55P03" or sqlite_code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def explain_error(error: DatabaseError | InterfaceError) -> Explanation:
    """Return an error's explanation; its text has no address and no statement, so anybody may read it."""
    code, result = sqlstate(error), sqlite_code(error)
    if code in ("42P01", "42703") or "no such table" in str(error) or "no such column" in str(error):
        return Explanation(_NOT_MIGRATED)
    for known in code, code[:2]:
        if known in _POSTGRESQL:
            return Explanation(_POSTGRESQL[known])
    for name, text in _SQLITE.items():
        if result.startswith(name):
            return Explanation(text)
    if isinstance(error, RepeatedInVain):
        return Explanation(str(error))
    return Explanation(_AWAY) if _is_away(error, code) else Explanation(_OURS, is_passing=False)


def _is_away(error: BaseException, code: str) -> bool:
    """Whether the connection was lost, refused or ended: such an error has no code, or a code of the server.

    SQLite has no connection that could be lost.
    """
    is_of_server = isinstance(error, OperationalError | InterfaceError)
    return is_of_server and not isinstance(error.__cause__, sqlite3.Error) and code[:2] in ("", "08", "57")


def log_line(error: DatabaseError | InterfaceError) -> str:
    """Return an error's explanation and its own text in one line, for the database's administrator."""
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{explain_error(error).text} ({text})"


class RepeatedInVain(OperationalError):
    """The database ended every try of a write that was repeated up to the maximum."""
