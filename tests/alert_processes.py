"""Ticks of alerts in processes of their own: for tests that race them, or kill one in the middle.

As a program: `python -m tests.alert_processes hang | race`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parent.parent
NOW_MS = 1_795_000_000_000
#: Groups of one alert each.
GROUPS = 20
ROUNDS = 15


class AlertProcesses:
    """A database of its own, and processes that tick."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SECRET_KEY": "only for tests",
            "DATABASE_URL": database_url,
            "FENCELINE_CONFIG": "",
            "FENCELINE_DATA": str(folder),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, what: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-W", "ignore", "-m", "tests.alert_processes", what]
        return subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )


def create_rows() -> None:
    """Make the tables, a channel, and findings that were found often enough."""
    from django.core.management import call_command

    from dashboard.alerts import evaluate as evaluate_alerts
    from dashboard.evaluation import evaluate as evaluate_rules
    from dashboard.models import Channel
    from dashboard.runtime import collector_store, leases
    from fenceline.facts import Finding, Severity

    call_command("migrate", verbosity=0)
    collector_store.sync_clusters(["prod"])
    Channel.objects.create(
        name="pager", kind="webhook", url="https://x", group_by=["subject"], group_wait_s=0, created_by="ada"
    )
    evaluate_alerts.evaluate_alerts(lease("seed"), now_ms=NOW_MS)
    judging = leases.acquire("prod", "judge", holder="test", now_ms=NOW_MS)
    assert judging is not None
    findings = [
        Finding("coordinator_overdue", "prod", f"group:g{number}", Severity.WARNING, NOW_MS, "s", "e", "n")
        for number in range(GROUPS)
    ]
    for _ in range(3):
        evaluate_rules.save_findings(judging, findings, sees=lambda row: True, now_ms=NOW_MS)


def lease(holder: str) -> Any:
    """Return the one lease there is, as whoever has its token: two of these are one holder twice."""
    from dashboard.alerts import evaluate as evaluate_alerts
    from dashboard.models import Collector
    from dashboard.runtime import leases

    row = Collector.objects.filter(name=evaluate_alerts.NAME).first()
    if row is None:
        return leases.acquire("prod", evaluate_alerts.NAME, holder=holder, now_ms=NOW_MS)
    return leases.Lease("prod", row.cluster_id, evaluate_alerts.NAME, row.token)


def hang() -> None:
    """Make all of it, tick, and stand still where everything is written but not committed."""
    from dashboard.alerts import evaluate as evaluate_alerts
    from dashboard.runtime import write_transactions

    def stand(cluster_id: int) -> int:
        print("in the middle", flush=True)
        time.sleep(600)
        return cluster_id

    create_rows()
    write_transactions.next_rev = stand
    evaluate_alerts.evaluate_alerts(lease("hang"), now_ms=NOW_MS + 1_000)


def race() -> None:
    """Say what there is, tick many times from when a line is read, and say it again."""
    from dashboard.alerts import evaluate as evaluate_alerts

    held = lease("race")
    report(0)
    sys.stdin.readline()
    report(
        sum(evaluate_alerts.evaluate_alerts(held, now_ms=NOW_MS + 1_000 * number) for number in range(ROUNDS))
    )


def report(made: int) -> None:
    """Print how many messages were made, what fires, the changes' fates, and the messages there are."""
    from dashboard.models import Alert, AlertChange, Delivery

    said = {
        "made": made,
        "firing": Alert.objects.filter(state="firing").count(),
        "fates": list(AlertChange.objects.order_by("pk").values_list("fates", flat=True)),
        "groups": list(Delivery.objects.values_list("group_key", flat=True)),
        "ids": list(Delivery.objects.values_list("message_id", flat=True)),
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    django.setup()
    {"hang": hang, "race": race}[sys.argv[1]]()
