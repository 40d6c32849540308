"""Workers that run `dashboard.deliver` alone, in processes of their own: for tests that kill them.

As a program, `python -m tests.delivery_workers`, it makes the tables and then, for each line that it reads,
a child that sends until it is killed: children are there at once, a new Python takes seconds.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import dj_database_url
import django
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, connections
from django.db.models.functions import Now

from sandbox.ports import free_port
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S, GRACE_S = 1.5, 0.5
#: The database of a worker as Django calls it here.
_ALIAS = "deliveries"


class Worker:
    """Deliveries in a database of their own, and a process that sends them, if it was started.

    Needs access to databases (`django_db_blocker.unblock()`), of which it touches its own alone.
    """

    def __init__(self, folder: Path, database_url: str) -> None:
        config = folder / "fenceline.toml"
        config.write_text(
            '[clusters.prod]\n"bootstrap.servers" = "127.0.0.1:1"\n'
            f'[alerts]\nallow_private = ["127.0.0.1"]\ntimeout_s = {TIMEOUT_S}\nretry_for_s = 600\n'
        )
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SECRET_KEY": "only for tests",
            "DATABASE_URL": database_url,
            "FENCELINE_CONFIG": str(config),
            "FENCELINE_DATA": str(folder),
            # Nobody listens: slices go on where they are, bells ring for nobody.
            "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
            "PYTHONPATH": str(ROOT),
        }
        self._log = (folder / "worker.log").open("ab")
        self._parent = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.delivery_workers"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        self._pid = 0
        assert self._said() == "ready", self.log
        connections.databases[_ALIAS] = _configured(database_url)

    def _said(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._parent.kill()
        self._parent.communicate()
        self._log.close()
        self.forget()
        del connections[_ALIAS], connections.databases[_ALIAS]

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    @property
    def rss_kb(self) -> int:
        """The memory of the process that sends, in kB."""
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def start(self) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        self._pid = int(self._said())

    def kill(self) -> None:
        """Kill -9, if it runs."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            wait_for(lambda: not Path(f"/proc/{self._pid}").exists(), "the worker is gone")
            self._pid = 0

    def forget(self) -> None:
        """Close our own connection: the database was killed, or is to be left."""
        connections[_ALIAS].close()

    def add(self, channel: str, url: str, secret: str, count: int) -> list[str]:
        """Save so many messages to a channel, each of a group of its own, and return their ids."""
        from dashboard.models import Channel, Delivery

        to, _ = Channel.objects.using(_ALIAS).get_or_create(
            name=channel, defaults={"kind": "webhook", "url": url, "secret": secret, "created_by": "ada"}
        )
        first = Delivery.objects.using(_ALIAS).count()
        ids = [f"msg_{number}" for number in range(first, first + count)]
        rows = [Delivery(channel=to, message_id=each, group_key=each, payload={"id": each}) for each in ids]
        Delivery.objects.using(_ALIAS).bulk_create(rows)
        Delivery.objects.using(_ALIAS).filter(next_at=None).update(next_at=Now())
        return ids

    def report(self) -> list[dict[str, Any]]:
        """Return every delivery: its message_id, state, attempts and tries."""
        from dashboard.models import Delivery

        rows = Delivery.objects.using(_ALIAS).order_by("pk")
        return list(rows.values("message_id", "state", "attempts", "tries"))


def _configured(database_url: str) -> dict[str, Any]:
    """Return the settings of a database as Django completes those of its own."""
    configured: dict[str, Any] = {**settings.DATABASES["default"], **dj_database_url.parse(database_url)}
    if "sqlite" not in configured["ENGINE"]:
        configured["OPTIONS"] = {}
    return configured


def send() -> None:
    """Send what is due until killed: the task's slices, whose lease the one before left."""
    from dashboard.alerts import deliver
    from dashboard.models import Collector
    from dashboard.runtime import collector_names
    from dashboard.tasks import schedule

    deliver.GRACE_S = GRACE_S
    while True:
        try:
            left = (
                Collector.objects.filter(name=collector_names.DELIVERIES)
                .values_list("token", flat=True)
                .first()
            )
            schedule.deliveries.task("prod", left)
        except DatabaseError as error:
            print("the database refused:", error, file=sys.stderr, flush=True)
            connection.close()
        time.sleep(0.1)


def main() -> None:
    """Make the tables, then a child for each line."""
    django.setup()
    from dashboard.runtime import collector_store

    call_command("migrate", verbosity=0)
    collector_store.sync_clusters(["prod"])
    connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            send()
        print(child, flush=True)


if __name__ == "__main__":
    main()
