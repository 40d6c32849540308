"""From a commit's acknowledgement to the changed row in an open page of a real browser, under load.

Probes commit one transaction a second each while a load of 500 transactions a second runs; the page is the
list of transactions with all of them on it. A probe counts when its row shows a commit not older than the
probe's own beginning.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import quantiles

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, sync_playwright

from benchmarks.load import TOPIC, make_producer
from sandbox.kafka import Broker
from tests.chromium import USUAL_ARGUMENTS, executable
from tests.deployment import PASSWORD, Stack

RATE, IDS, SECONDS, PROBES = 500, 30, 60, 10
# Notes each change of a probe's row with the browser's clock, which is this machine's.
WATCH = """() => {
  window.seen = [];
  const note = () => document.querySelectorAll('tbody tr').forEach((row) => {
    const id = row.querySelector('[data-row]')?.textContent.trim();
    if (!id?.startsWith('probe-')) return;
    const state = row.querySelector('.col-state').textContent.trim();
    const updated = row.querySelector('.col-updated time').dateTime;
    const last = window.seen.findLast((each) => each[1] === id);
    if (!last || last[2] !== state || last[3] !== updated) window.seen.push([Date.now(), id, state, updated]);
  });
  const all = {subtree: true, childList: true, attributes: true, characterData: true};
  new MutationObserver(note).observe(document.querySelector('main'), all);
}"""


@dataclass
class Commit:
    """One probe's transaction, by this machine's clock."""

    name: str
    began_ms: float
    returned_ms: float


def run() -> dict[str, object]:
    """Measure with a stack, a broker and a browser of its own."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 8, 1)])[TOPIC].result(30)
        with Stack(Path(folder), BOOTSTRAP=broker.bootstrap, DEMO="0") as stack:
            return _measure(stack, broker.bootstrap)


def _measure(stack: Stack, bootstrap: str) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.load", bootstrap, str(IDS), str(RATE), str(SECONDS + 20)]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    try:
        load.stdout.readline()
        commits, seen = _probe(stack, bootstrap)
        rate = float(load.stdout.readline())
    finally:
        load.kill()
        load.wait()
    return _figures(commits, seen) | {"transactions/s beside it": round(rate)}


def _probe(stack: Stack, bootstrap: str) -> tuple[list[Commit], list[list[object]]]:
    commits: list[Commit] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=USUAL_ARGUMENTS)
        page = browser.new_page()
        _open(page, stack)
        threads = [
            threading.Thread(
                target=_commit, args=(make_producer(bootstrap, f"probe-{n}"), f"probe-{n}", commits)
            )
            for n in range(PROBES)
        ]
        page.wait_for_selector("tbody tr")
        page.evaluate(WATCH)
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            page.wait_for_timeout(500)
        page.wait_for_timeout(3_000)
        seen: list[list[object]] = page.evaluate("window.seen")
        browser.close()
    return commits, seen


def _open(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/login/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(f"{stack.url}/")
    page.goto(f"{stack.url}/transactions?size=100")


def _commit(producer: Producer, name: str, commits: list[Commit]) -> None:
    for _ in range(SECONDS):
        time.sleep(random.uniform(0.8, 1.2))
        began_ms = time.time() * 1000
        producer.begin_transaction()
        producer.produce(TOPIC, b"probe")
        producer.commit_transaction(60)
        commits.append(Commit(name, began_ms, time.time() * 1000))


def _figures(commits: list[Commit], seen: list[list[object]]) -> dict[str, object]:
    waits = [wait for commit in commits if (wait := _wait(commit, seen)) is not None]
    cuts = quantiles(waits, n=100)
    return {
        "commit acknowledged -> row changed, p50 ms (<= 400)": round(cuts[49]),
        "p95 ms": round(cuts[94]),
        "p99 ms (<= 1200)": round(cuts[98]),
        "probes": len(commits),
        "probes never shown": len(commits) - len(waits),
    }


def _wait(commit: Commit, seen: list[list[object]]) -> float | None:
    for at, name, state, updated in seen:
        if name == commit.name and "Commit" in str(state) and _ms(str(updated)) >= int(commit.began_ms):
            return max(0.0, float(str(at)) - commit.returned_ms)
    return None


def _ms(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp() * 1000
