"""10,000 findings that open and close within an hour, replayed by a clock of its own, as fast as it goes.

Each lives for some seconds, of four rules on one cluster; three channels are notified. What counts: messages
stay few (they are grouped), every change has a fate, a tick stays short, and memory does not grow.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from sandbox.options import ROOT

FINDINGS, HOUR_S, SEED = 10_000, 3_600, 7
RULES = ("coordinator_overdue", "lso_pinned", "open_too_long", "hanging")
NOW_MS = 1_795_000_000_000
_MB = 1_024 * 1_024


def run() -> dict[str, object]:
    """Measure in a process of our own, on a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "SECRET_KEY": "only for benchmarks",
            "FENCELINE_CONFIG": "",
            "FENCELINE_DATA": folder,
            "DATABASE_URL": f"sqlite:///{folder}/fenceline.db",
            "REDIS_URL": "redis://127.0.0.1:1/0",
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.alerts"]
        completed = subprocess.run(
            command, cwd=ROOT, env=environment, text=True, check=True, stdout=subprocess.PIPE
        )
    figures: dict[str, object] = json.loads(completed.stdout)
    return figures


def _seconds() -> Iterator[Sequence[tuple[str, str]]]:
    """Yield rule and subject of what is found in each second of the hour, and of the minutes after it."""
    dice = random.Random(SEED)
    starts: dict[int, list[tuple[int, str, str]]] = {}
    for number in range(FINDINGS):
        begin, lives = dice.randrange(HOUR_S - 60), dice.choice((1, 3, 10, 45))
        starts.setdefault(begin, []).append((begin + lives, dice.choice(RULES), f"partition:orders-{number}"))
    open_: list[tuple[int, str, str]] = []
    for second in range(HOUR_S + 600):
        open_ = [each for each in open_ if each[0] > second] + starts.get(second, [])
        yield [(rule, subject) for _, rule, subject in open_]


def main() -> None:
    """Replay the hour and print the figures."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection, reset_queries
    from django.db.models import Count
    from django.test.utils import CaptureQueriesContext

    from dashboard.alerts import evaluate as evaluate_alerts
    from dashboard.evaluation import evaluate as evaluate_rules
    from dashboard.models import Alert, AlertChange, Channel, Delivery
    from dashboard.runtime import collector_store, leases, notify
    from fenceline.facts import Finding, Severity

    call_command("migrate", verbosity=0)
    collector_store.sync_clusters(["prod"])
    # There is no Redis here: pages are not notified.
    notify.notify_change = lambda *_, **__: None
    evaluating = leases.acquire("prod", evaluate_rules.NAME, holder="bench", now_ms=NOW_MS)
    alerting = leases.acquire("prod", evaluate_alerts.NAME, holder="bench", now_ms=NOW_MS)
    assert evaluating is not None
    assert alerting is not None
    for name, kind in (("pager", "webhook"), ("chat", "apprise"), ("alertmanager", "alertmanager")):
        Channel.objects.create(name=name, kind=kind, url="https://x", created_by="bench")
    evaluate_alerts.evaluate_alerts(alerting, now_ms=NOW_MS)
    took, queries, memory = [], [], []
    for second, found in enumerate(_seconds()):
        now_ms = NOW_MS + second * 1_000
        findings = [
            Finding(rule, "prod", subject, Severity.WARNING, now_ms, "s", "e" * 200, "n")
            for rule, subject in found
        ]
        evaluate_rules.save_findings(evaluating, findings, sees=lambda row: True, now_ms=now_ms)
        # Its log is bounded: a full one would count nothing.
        reset_queries()
        began = time.monotonic()
        with CaptureQueriesContext(connection) as caught:
            evaluate_alerts.evaluate_alerts(alerting, now_ms=now_ms)
        took.append(time.monotonic() - began)
        queries.append(len(caught))
        Delivery.objects.filter(state="pending").update(state="delivered")
        if second % 60 == 0:
            memory.append(_rss())
    made = dict(Delivery.objects.values_list("channel__name").annotate(n=Count("pk")))
    fired = Alert.objects.filter(fired_ms__isnull=False).count()
    changes = AlertChange.objects.count()
    unsettled = AlertChange.objects.filter(processed_at=None).count()
    short = [change for change in AlertChange.objects.only("fates").iterator() if len(change.fates) != 3]
    most = sorted(took)[-len(took) // 100]
    figures = {
        "findings, of which fired": f"{Alert.objects.count():,}, {fired:,}",
        "changes, without a fate for each channel": f"{changes:,}, {unsettled + len(short)}",
        **{f"messages to {name} in the hour": count for name, count in sorted(made.items())},
        "a tick, ms, median / 99 of 100": f"{median(took) * 1_000:.1f} / {most * 1_000:.1f}",
        "queries of a tick, median / most": f"{median(queries):.0f} / {max(queries)}",
        "memory after 10 m / at the end, MB": f"{memory[10] / _MB:.0f} / {memory[-1] / _MB:.0f}",
    }
    print(json.dumps(figures))


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
