"""A PostgreSQL of the tests' own: Debian's programs, in a folder and on a port of its own.

    with Server() as server:
        url = server.new_database()

It sorts as American English does, so that whatever leans on another order fails here; it is no server for
anything that should last, since it never waits for the disk. As root it runs as a user who is not.
"""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from sandbox.ports import HOST, free_port
from tests.waiting import wait_for

#: Who runs it where root may not; the first one that is there.
_USERS = ("postgres", "nobody")
_OWNER = "fenceline"
#: What is lost with the machine is lost with the test.
_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}


def programs() -> Path:
    """Return the folder of PostgreSQL's programs; `make test` installs them or gives the remedy."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    found = debian or [Path(each) for each in (on_path,) if each]
    assert found, "these tests need PostgreSQL: install it (Debian: apt install postgresql)"
    return found[-1].parent


class Server:
    """Started when entered, gone when left."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._programs = programs()
        self._folder = Path(tempfile.mkdtemp(prefix="fenceline-postgres-"))
        self._data = self._folder / "data"
        self._password = secrets.token_hex(16)
        self.port = free_port()
        self._user: Mapping[str, Any] = _unprivileged_user() if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self._folder, self._user["user"])

    def __enter__(self) -> Self:
        password = self._folder / "password"
        password.write_text(self._password)
        password.chmod(0o644 if self._user else 0o600)
        asked = ["--pgdata", str(self._data), "--username", _OWNER, "--pwfile", str(password), "--no-sync"]
        # Over the socket anybody on this machine would be asked; over TCP everybody is.
        self._run("initdb", *asked, "--auth=scram-sha-256", "--encoding=UTF8", *self._locale())
        password.unlink()
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "port": str(self.port),
            "listen_addresses": HOST,
            "unix_socket_directories": str(self._folder),
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._log = (self._folder / "log").open("ab")
        command = [str(self._programs / "postgres"), "-D", str(self._data), *options]
        self.process = subprocess.Popen(
            command, cwd=self._folder, stdout=self._log, stderr=subprocess.STDOUT, **self._user
        )
        wait_for(self._answers, "PostgreSQL answers", 60)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends all sessions first, SIGQUIT none, as a loss of power would."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)
        self._log.close()

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"fenceline_{secrets.token_hex(4)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgres://{_OWNER}:{self._password}@{HOST}:{self.port}/{database}"

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self._folder / "log").read_text()[-2000:]
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _locale(self) -> Sequence[str]:
        known = subprocess.run(
            [self._programs / "initdb", "--help"], capture_output=True, text=True, check=True
        ).stdout
        # Before its version 15 a database cannot have a locale that the machine does not have.
        icu = ("--locale-provider=icu", "--icu-locale=en-US") if "--icu-locale" in known else ()
        return ("--locale=C", *icu)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            **self._user,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


def _unprivileged_user() -> dict[str, Any]:
    known = {each.pw_name: each for each in pwd.getpwall()}
    found = next(known[name] for name in _USERS if name in known)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
