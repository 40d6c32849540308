"""Proves with Prometheus's own programs that an Alertmanager accepts the alerts and promtool the metrics.

`make soak` alone runs this: both programs must be on PATH (Debian: prometheus-alertmanager, prometheus).
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.db.models.functions import Now
from django.test import Client

from dashboard.alerts import deliver
from dashboard.config import Config
from dashboard.models import Cluster, Delivery
from dashboard.runtime import loop
from fenceline.alerts.engine import Alerting
from sandbox.ports import HOST, free_port
from tests.db.scenarios import AlertScenario, channel, finding, scenario
from tests.waiting import wait_for
from tests.web import scenarios

__all__ = ["scenario"]

pytestmark = [pytest.mark.django_db, pytest.mark.soak]


def program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    assert found, f"put {names[0]} on PATH (Debian: apt install prometheus-alertmanager prometheus)"
    return found


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The address of an Alertmanager that notifies no receiver."""
    config, address = tmp_path / "alertmanager.yml", f"{HOST}:{free_port()}"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    command = [
        program("alertmanager", "prometheus-alertmanager"),
        f"--config.file={config}",
        f"--storage.path={tmp_path}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for(lambda: is_ready(address), "the Alertmanager is ready")
        yield f"http://{address}"
    finally:
        running.kill()
        running.wait()


def is_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def active(address: str) -> dict[str, Any]:
    """Return its active alerts, by subject."""
    with urlopen(f"{address}/api/v2/alerts?active=true", timeout=5) as answer:
        return {each["labels"]["subject"]: each for each in json.load(answer)}


def sent() -> None:
    """Send what is due, as a worker does."""
    Delivery.objects.filter(state="pending").update(next_at=Now())
    for row in deliver.due_deliveries():
        claimed = deliver.claim(row.pk, 5)
        assert claimed is not None
        deliver.send_delivery(claimed)
    assert not Delivery.objects.exclude(state="delivered").exists()


def test_an_alertmanager_keeps_firing_alerts_active_until_they_resolve(
    scenario: AlertScenario, alertmanager: str, settings: Any
) -> None:
    settings.FENCELINE = Config(alerts=Alerting(allow_private=("127.0.0.0/8",)))
    channel("am", kind="alertmanager", url=alertmanager, group_wait_s=0, group_interval_s=1)
    both = [finding(f"transaction:payments-{number}-ключ") for number in range(2)]
    # An Alertmanager goes by its own clock.
    scenario.now_ms = loop.now_ms() - 10_000
    scenario.run(3, *both)
    sent()
    held = active(alertmanager)
    assert sorted(held) == sorted(each.subject for each in both)
    one = held[both[0].subject]
    assert one["labels"]["alertname"] == "coordinator_overdue"
    assert one["labels"]["severity"] == "warning"
    assert one["annotations"]["next_step"] == "n"
    assert one["generatorURL"].startswith("http")
    scenario.run(5, both[1])
    sent()
    assert list(active(alertmanager)) == [both[1].subject]


def test_promtool_accepts_the_metrics(client: Client) -> None:
    scenarios.busy_transactions(Cluster.objects.get(name="prod"))
    told = client.get("/metrics").content.decode()
    command = [program("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
