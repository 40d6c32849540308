"""Latency from a commit's acknowledgement to the changed row in a real browser, hop by hop, under load.

Probes commit one transaction a second each while a load of 500 transactions a second runs; the page is the
list of transactions with all of them on it. A probe counts when its row shows a commit not older than the
probe's own beginning. `benchmarks/hops.py` has the instants of each hop.
"""

import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, sync_playwright

from benchmarks.hops import BrowserTrace, Commit, SaveTrace, hop_figures
from benchmarks.load import TOPIC, make_producer
from sandbox.kafka import Broker
from tests.chromium import USUAL_ARGUMENTS, executable
from tests.deployment import PASSWORD, Stack

RATE, IDS, SECONDS, PROBES = 500, 30, 60, 10
#: Warm-up: a new broker compiles its code, which takes both cores for a while.
WARM_UP_S = 15


def run() -> dict[str, object]:
    """Measure with a separate stack, broker and browser."""
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 8, 1)])[TOPIC].result(30)
        with Stack(Path(folder), BOOTSTRAP=broker.bootstrap, DEMO="0") as stack:
            return _measure(stack, broker.bootstrap)


def _measure(stack: Stack, bootstrap: str) -> dict[str, object]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        bootstrap,
        str(IDS),
        str(RATE),
        str(WARM_UP_S + SECONDS + 20),
    ]
    load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    try:
        load.stdout.readline()
        with SaveTrace(stack.described()) as saves:
            commits, browser = _probe(stack, bootstrap)
        rate = float(load.stdout.readline())
    finally:
        load.kill()
        load.wait()
    return hop_figures(commits, saves, browser) | {"transactions/s beside it": round(rate)}


def _probe(stack: Stack, bootstrap: str) -> tuple[list[Commit], BrowserTrace]:
    commits: list[Commit] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=USUAL_ARGUMENTS)
        page = browser.new_page()
        page.add_init_script(path=Path(__file__).parent / "watch.js")
        _open(page, stack)
        producers = [(name, make_producer(bootstrap, name)) for name in map("probe-{}".format, range(PROBES))]
        threads = [
            threading.Thread(target=_commit, args=(producer, name, commits)) for name, producer in producers
        ]
        page.wait_for_selector("tbody tr")
        page.wait_for_timeout(WARM_UP_S * 1000)
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            page.wait_for_timeout(500)
        page.wait_for_timeout(3_000)
        trace = BrowserTrace(**page.evaluate("window.trace"))
        browser.close()
    return commits, trace


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
