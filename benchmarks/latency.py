"""Latency from a commit's acknowledgement to the changed row in a real browser, hop by hop, under load.

Probes commit one transaction a second each while a load of 500 transactions a second runs; the page is the
list of transactions with all of them on it. A probe counts when its row shows a commit not older than the
probe's own beginning.

All clocks are this machine's. The row in the page names its save by `data-rev`. A Redis subscriber and a
database reader record the instants at which this save began, was committed and was published. The page's
script records the notification, the request, the answer and the change.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from types import TracebackType
from typing import Any, Self

import msgpack
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Page, sync_playwright

from benchmarks.load import TOPIC, make_producer
from sandbox.kafka import Broker
from tests import databases
from tests.chromium import USUAL_ARGUMENTS, executable
from tests.deployment import PASSWORD, Stack

RATE, IDS, SECONDS, PROBES = 500, 30, 60, 10
#: Warm-up: a new broker compiles its code, which takes up to half a core for 50 s.
WARM_UP_S = 60
#: Lifetime of a tail's lease after its renewal.
_LEASE_MS = 6_000
#: Seconds between two reads of the database.
_READ_EVERY_S = 0.005
_REV = "SELECT c.rev, l.expires_at FROM dashboard_cluster c JOIN dashboard_collector l ON l.cluster_id = c.id"
HOPS = (
    "acknowledged -> record's timestamp",
    "-> its save begins (fetch, poll, decode)",
    "-> saved and committed",
    "-> published",
    "-> in the browser",
    "-> request sent",
    "-> answered",
    "-> changed in the DOM",
    "-> painted",
)


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


@dataclass
class Commit:
    """One probe's transaction, by this machine's clock."""

    name: str
    began_ms: float
    returned_ms: float


@dataclass
class BrowserTrace:
    """The page's log: (instant, rev) of notifications, (sent, answered) of requests, and changes of rows."""

    bells: Sequence[tuple[float, int]]
    requests: Sequence[tuple[float, float]]
    rows: Sequence[Mapping[str, Any]]


class SaveTrace:
    """Records the tail's saves while entered: the instants of each save's begin, commit and notification."""

    def __init__(self, stack: Mapping[str, str]) -> None:
        self._stack = stack
        self._over = threading.Event()
        self._threads = [threading.Thread(target=read) for read in (self._read_database, self._subscribe)]
        #: Instants at which the tail's lease was renewed, which begins a save.
        self.began: list[float] = []
        #: (revision of the cluster, instant).
        self.committed: list[tuple[int, float]] = []
        self.published: list[tuple[int, float]] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _read_database(self) -> None:
        with databases.reading(self._stack["database"]) as cursor:
            while not self._over.wait(_READ_EVERY_S):
                cursor.execute(f"{_REV} WHERE l.name = 'transaction_state'")
                rev, expires_at = cursor.fetchone()
                self._note(rev, _ms(expires_at) - _LEASE_MS)

    def _note(self, rev: int, began_ms: float) -> None:
        if not self.began or self.began[-1] != began_ms:
            self.began.append(began_ms)
        if not self.committed or self.committed[-1][0] != rev:
            self.committed.append((rev, time.time() * 1000))

    def _subscribe(self) -> None:
        heard = redis.Redis.from_url(self._stack["redis"]).pubsub(ignore_subscribe_messages=True)
        heard.psubscribe("*__group__live")
        while not self._over.is_set():
            message = heard.get_message(timeout=1.0)
            if message and (bell := msgpack.unpackb(message["data"])).get("kind") == "transactions":
                self.published.append((bell["rev"], time.time() * 1000))
        heard.close()


def hop_figures(commits: Sequence[Commit], saves: SaveTrace, browser: BrowserTrace) -> dict[str, object]:
    """Return p50 and p99 of the total and of each hop, in milliseconds."""
    traces = [instants for commit in commits if (instants := _instants(commit, saves, browser)) is not None]
    shown = [max(0.0, instants[-2] - instants[0]) for instants in traces]
    figures: dict[str, object] = {
        "commit acknowledged -> row changed, p50 ms (<= 150)": round(_cut(shown, 50)),
        "p95 ms": round(_cut(shown, 95)),
        "p99 ms (<= 400)": round(_cut(shown, 99)),
    }
    for number, hop in enumerate(HOPS):
        took = [instants[number + 1] - instants[number] for instants in traces]
        figures[f"  {hop}, p50 / p99 ms"] = f"{_cut(took, 50):.0f} / {_cut(took, 99):.0f}"
    asked = [sent for sent, _ in browser.requests]
    gaps = [after - before for before, after in pairwise(asked)]
    figures["requests of the page, median gap ms"] = round(_cut(gaps, 50))
    figures["saves, median gap ms"] = round(_cut([b - a for a, b in pairwise(saves.began)], 50))
    return figures | {"probes": len(commits), "probes never shown": len(commits) - len(traces)}


def _instants(commit: Commit, saves: SaveTrace, browser: BrowserTrace) -> list[float] | None:
    row = next((row for row in browser.rows if _shows(row, commit)), None)
    if row is None:
        return None
    rung = next((at for at, rev in browser.bells if rev >= row["rev"]), row["at"])
    sent, answered = [asked for asked in browser.requests if asked[1] <= row["at"] + 1][-1]
    committed = next(at for rev, at in saves.committed if rev >= row["rev"])
    published = next((at for rev, at in saves.published if rev >= row["rev"]), row["at"])
    began = saves.began[bisect_right(saves.began, committed) - 1]
    on_page = rung, sent, answered, row["at"], row["painted"]
    return [commit.returned_ms, row["updated"], began, committed, published, *on_page]


def _shows(row: Mapping[str, Any], commit: Commit) -> bool:
    is_newer = row["updated"] >= int(commit.began_ms)
    return bool(row["name"] == commit.name and "Commit" in row["state"] and is_newer)


def _cut(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100)[percent - 1] if len(values) > 1 else 0.0


def _ms(instant: datetime | str) -> float:
    at = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
