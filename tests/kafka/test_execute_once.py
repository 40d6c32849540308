"""Proves, with processes, threads and a database file of their own, that a plan is executed once: by two
operators at once, by a double click, by a message that comes twice; that the row shows what a killed worker
has done; and that a plan stays planned while no worker can be reached. Kafka's own admin
client shows what was done."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.kafka.producers import open_in
from tests.stack.redis_server import RedisServer
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

#: What every program here begins with.
PRELUDE = """
    import json, os, signal, sys, threading
    import django
    django.setup()
    from dashboard.actions import execute, follow_up, planning
    from dashboard.actions import store as action_store
    from dashboard.celery import app
    from dashboard.models import Action
    from dashboard.runtime import collector_store, leases, loop
    from dashboard.system.access import ROLES, Actor
    from django.db import connection
    from django.db.models.functions import Now
    from fenceline.plans.plan import Act

    def operator(name):
        return Actor(name, "page", ROLES["operator"] | ROLES["admin"])

    def confirm(row, name):
        plan = action_store.plan_of(row)
        try:
            return execute.confirm_plan(
                row, digest=row.digest, typed=plan.confirm, reason="stuck", actor=operator(name),
                now_ms=loop.now_ms(),
            ).state
        except execute.ExecutionRefused as refused:
            return refused.status

    def at_once(*calls):
        barrier, said = threading.Barrier(len(calls)), [None] * len(calls)
        def call(number):
            barrier.wait()
            said[number] = calls[number]()
            connection.close()
        threads = [threading.Thread(target=call, args=(number,)) for number in range(len(calls))]
        for each in threads: each.start()
        for each in threads: each.join()
        return said

    def told(row):
        row.refresh_from_db()
        return {"state": row.state, "by": row.executed_by, "results": row.results, "token": row.lease_token}

    collector_store.sync_clusters(["prod"])
    names = sys.argv[1:]
    def keep():
        plan = planning.make_plan("prod", Act.FENCE, names, force=True, now_ms=loop.now_ms())
        return action_store.save_plan(plan, operator("olga"))
"""


class Deployed:
    """A database, a Redis and a configuration of their own; programs run against them."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._redis = RedisServer(folder)
        config = folder / "fenceline.toml"
        config.write_text(f'[clusters.prod]\n"bootstrap.servers" = "{bootstrap}"\n')
        self.environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SECRET_KEY": "only for tests",
            "FENCELINE_DATA": str(folder),
            "FENCELINE_CONFIG": str(config),
            "DATABASE_URL": "",
            "REDIS_URL": self._redis.url,
        }
        self._run([str(ROOT / "manage.py"), "migrate", "--verbosity", "0"])

    def run(self, program: str, *names: str, killed: bool = False) -> Any:
        """Run a program; return its last line, read as JSON."""
        code = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
        done = self._run(["-c", code, *names], killed=killed)
        return json.loads(done.stdout.splitlines()[-1])

    def _run(self, arguments: list[str], *, killed: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=self.environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == (-signal.SIGKILL if killed else 0), done.stdout + done.stderr
        return done

    def stop(self) -> None:
        self._redis.kill()


@pytest.fixture(scope="module")
def deployed(kafka_42: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    made = Deployed(tmp_path_factory.mktemp("deployed"), kafka_42.bootstrap)
    yield made
    made.stop()


@pytest.fixture
def names(kafka_42: Broker) -> list[str]:
    """Ids whose transactions are open, and whose producers are gone."""
    topic = f"once-{uuid.uuid4().hex[:8]}"
    create_topics(kafka_42.bootstrap, topic)
    found = [f"{topic}-{number}" for number in range(2)]
    for name in found:
        open_in(kafka_42.bootstrap, name, topic, 0).abandon()
    return found


def described(broker: Broker, gateway: JavaGateway, names: list[str]) -> list[tuple[str, int]]:
    with JavaAdmin(gateway, broker.bootstrap) as admin:
        said = admin.describe_transactions(names)
    return [(said[name].state, said[name].producer_epoch) for name in names]


def test_operators_at_once_execute_a_plan_once(
    deployed: Deployed, names: list[str], kafka_42: Broker, java: JavaGateway
) -> None:
    """Two operators who click at once, one of them twice; then two workers that have the message at once."""
    said = deployed.run(
        """
        row = keep()
        clicks = at_once(*(lambda name=name: confirm(Action.objects.get(pk=row.pk), name)
                           for name in ("olga", "olga", "otto", "otto")))
        with app.connection_for_write() as broker:
            queued = broker.default_channel.client.llen("default")
        token = told(row)["token"]
        workers = at_once(*[lambda: execute.run_action(row.pk, token)] * 2)
        late = execute.run_action(row.pk, token)
        print(json.dumps({"clicks": clicks, "queued": queued, "workers": workers, "late": late, **told(row)}))
        """,
        *names,
    )
    winner = said["by"]
    assert winner in ("olga", "otto")
    first = slice(0, 2) if winner == "olga" else slice(2, 4)
    assert said["clicks"][first] == ["executing"] * 2, "a double click is answered alike"
    assert [each for each in said["clicks"] if each == 409] == [409, 409]
    assert said["queued"] == 1
    assert (sorted(said["workers"]), said["late"]) == ([False, True], False)
    assert (said["state"], [each["outcome"] for each in said["results"]]) == ("done", ["done"] * 2)
    # Each end and each initialisation raises it.
    assert described(kafka_42, java, names) == [("Empty", 2)] * 2


def test_a_killed_worker_leaves_a_row_with_its_outcomes(
    deployed: Deployed, names: list[str], kafka_42: Broker, java: JavaGateway
) -> None:
    """SIGKILL after the request that begins the abort of the first; no worker executes it again."""
    deployed.run(
        """
        row = keep()
        confirm(row, "olga")
        print(json.dumps(row.pk), flush=True)
        asked = []
        def kill(step, subject):
            asked.append(step)
            if asked.count("InitProducerId") == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        execute.run_action(row.pk, told(row)["token"], kill)
        """,
        *names,
        killed=True,
    )
    expected = [("CompleteAbort", 1), ("Ongoing", 0)]
    wait_for(lambda: described(kafka_42, java, names) == expected, "the abort is over")
    said = deployed.run(
        """
        row = Action.objects.latest("pk")
        before = told(row)
        again = execute.run_action(row.pk, before["token"])
        lease = leases.acquire("prod", follow_up.NAME, holder="test", now_ms=loop.now_ms())
        Action.objects.update(lease_until=Now() + action_store.LIVES)
        follow_up.follow_actions(lease, now_ms=loop.now_ms())
        alive = told(row)["state"]
        Action.objects.update(lease_until=Now() - action_store.LIVES)
        follow_up.follow_actions(lease, now_ms=loop.now_ms())
        follow_up.close_connections("prod")
        late = execute.run_action(row.pk, before["token"])
        app.conf.broker_url = "redis://127.0.0.1:1/0"
        other = keep()
        away = [confirm(other, "olga"), told(other)]
        facts = {"before": before, "again": again, "alive": alive, "late": late, "away": away}
        print(json.dumps({**facts, **told(row)}))
        """,
        names[1],
    )
    assert said["before"]["state"] == "executing"
    assert [each["words"] for each in said["before"]["results"]] == ["InitProducerId is being sent"]
    assert (said["again"], said["late"], said["alive"]) == (False, False, "executing")
    assert (said["state"], [each["outcome"] for each in said["results"]]) == ("partly", ["done", "failed"])
    assert "it is aborted: epoch 0 → 1" in said["results"][0]["words"]
    assert "its worker died before it came to it" in said["results"][1]["words"]
    assert described(kafka_42, java, names) == expected, "it only looks"
    refused, row = said["away"]
    assert (refused, row["state"], row["by"], row["token"]) == (503, "planned", "", "")
