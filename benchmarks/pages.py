"""Server time of pages with 100,000 ids, for filters and sorts, and with 2,000,000 ids.

Whole stacks on SQLite; pages are fetched one after the other by a signed-in session. With 2,000,000 ids
(8,000,000 records) records keep coming at 40,000 a second meanwhile.
"""

import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from http.cookiejar import CookieJar
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlencode

from benchmarks import intake, seeding
from benchmarks.intake import process_usage
from sandbox.kafka import Broker
from sandbox.options import ROOT
from tests.deployment import PASSWORD, Stack
from tests.waiting import wait_for

ROUNDS = 12
SORTS = ("id", "state", "producer", "epoch", "timeout", "partitions", "started", "updated")
LISTS = (
    "/transactions?",
    *(f"/transactions?sort={sort}&dir={way}" for sort in SORTS for way in ("asc", "desc")),
    *(f"/transactions?state={state}" for state in ("open", "Ongoing", "CompleteCommit", "CompleteAbort")),
    *(f"/transactions?q={text}" for text in ("app-007", "99999", "no-such-id", "app-0")),
    "/transactions?q=7-1&state=CompleteCommit&sort=updated&dir=desc",
    "/transactions?min_age_s=60",
    "/transactions?page=400",
)
EVENTS = (
    "/events?",
    *(f"/events?last=24h&kind={kind}" for kind in ("timeout", "takeover", "rotation")),
    *(f"/events?last=24h&confidence={word}" for word in ("certain", "probable", "ambiguous")),
    *(f"/events?last={span}" for span in ("15m", "1h", "24h", "7d", "30d")),
    "/events?last=24h&application=app-007",
    "/events?last=24h&q=app-00",
    "/events?application=app-007&kind=timeout&last=7d",
)

#: The median time of a scrape, in milliseconds, reported as a ratio of two measurements.
_SCRAPE = "a scrape"


class Session:
    """A signed-in HTTP session."""

    def __init__(self, stack: Stack) -> None:
        self._url = stack.url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        form = self._opener.open(f"{self._url}/login/").read().decode()
        csrf = form.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        fields = urlencode({"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf}).encode()
        self._opener.open(urllib.request.Request(f"{self._url}/login/", fields, {"Referer": self._url}))

    def time_ms(self, path: str) -> float:
        """Fetch a page of the sandbox's only cluster; return the milliseconds."""
        began = time.perf_counter()
        self._opener.open(f"{self._url}{path}").read()
        return (time.perf_counter() - began) * 1000


def run() -> dict[str, Any]:
    """Measure with 100,000 ids, and with 2,000,000 under load."""
    few, many = _measure(100_000, 1_000_000, rate=0), _measure(2_000_000, 8_000_000, rate=40_000)
    scrapes = [figures.pop(_SCRAPE) for figures in (few, many)]
    shown = "{:.0f} and {:.0f} ms, ratio {:.1f}".format(*scrapes, scrapes[1] / scrapes[0])
    return {**few, **many, "/metrics with 100,000 ids and with 2,000,000": shown}


def _measure(ids: int, records: int, rate: float) -> dict[str, Any]:
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, seeding.run_broker(Path(folder) / "kafka") as broker:
        seeding.seed_records(broker.bootstrap, records, ids)
        with intake.stack_for(Path(folder), broker, shards=1) as stack:
            began = time.monotonic()
            wait_for(lambda: intake.records_behind(stack, broker) == 0, "all is read", 900)
            figures["read by the stack after, s"] = round(time.monotonic() - began, 1)
            load = _Load(broker, stack, ids, rate) if rate else None
            session = Session(stack)
            known = stack.api("transactions?limit=1")["items"][0]["transactional_id"]
            others = ("/?", "/system?", f"/transactions/bench/{known}?")
            try:
                for name, paths in (("/transactions", LISTS), ("/events", EVENTS), ("other pages", others)):
                    figures |= {f"{name}: {what}": figure for what, figure in _times(session, paths).items()}
                scrape_ms = median(session.time_ms("/metrics") for _ in range(ROUNDS))
            finally:
                if load is not None:
                    figures |= load.stop_load()
            figures["database, MB"] = round((stack.data / "fenceline.db").stat().st_size / 1e6)
    return {_SCRAPE: scrape_ms, **{f"{ids:,} ids, {what}": figure for what, figure in figures.items()}}


def _times(session: Session, paths: Sequence[str]) -> dict[str, object]:
    took = {path: [session.time_ms(path) for _ in range(ROUNDS)] for path in paths}
    slowest = max(took, key=lambda path: sorted(took[path])[-2])
    everything = [time_ms for times in took.values() for time_ms in times]
    return {
        "p95 of all, ms": round(quantiles(everything, n=20)[-1]),
        f"slowest {slowest}, p95, ms": round(quantiles(took[slowest], n=20)[-1]),
    }


class _Load:
    """Seeds records at a steady rate while pages are fetched, and measures how far the tail falls behind."""

    def __init__(self, broker: Broker, stack: Stack, ids: int, rate: float) -> None:
        self._broker, self._stack, self._rate = broker, stack, rate
        command = [sys.executable, "-m", "benchmarks.seeding", broker.bootstrap, str(ids), str(rate), "600"]
        self._seeder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        self._lag, self._stop = 0.0, threading.Event()
        self._watch = threading.Thread(target=self._follow_lag)
        self._watch.start()

    def _follow_lag(self) -> None:
        while not self._stop.wait(0.5):
            self._lag = max(self._lag, intake.records_behind(self._stack, self._broker) / self._rate)

    def stop_load(self) -> dict[str, object]:
        self._stop.set()
        self._watch.join()
        self._seeder.terminate()
        self._seeder.wait()
        worker = process_usage(self._stack.pid("worker-tail-0"))
        return {
            f"tail under {self._rate:,.0f}/s, furthest behind, s": round(self._lag, 2),
            "tail, MB resident": round(worker.rss_mb),
        }
