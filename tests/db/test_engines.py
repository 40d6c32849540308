"""Proves what is kept of engines' REST APIs: what they report, what is gone, and that one which is away,
slow, something else or wants credentials is a gap with its URL and a remedy, while the others go on."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from collectors import engines as collecting
from collectors.engines import EnginesCollector
from dashboard.config import ClusterConfig, Config, EngineEndpoint
from dashboard.engines import queries as engines
from dashboard.engines import store
from dashboard.models import Cluster, ConnectorRecord, FlinkJob, FlinkRunRecord, GapRecord
from dashboard.runtime.leases import Lease
from dashboard.tasks import polls
from fenceline.engines.status import EngineKind
from fenceline.limits import Limits
from tests.cases import cases
from tests.db.conftest import NOW_MS, Take
from tests.turns import take_turns

ANSWERS = Path(__file__).parents[1] / "data" / "engines"
#: Answers a request by its path: status, headers and body.
Answer = Callable[[str], tuple[int, Mapping[str, str], bytes]]


def recorded(name: str) -> Answer:
    """Return what answers as a real API did."""
    found = json.loads((ANSWERS / f"{name}.json").read_text())

    def answer(path: str) -> tuple[int, Mapping[str, str], bytes]:
        return (200, {}, json.dumps(found[path]).encode()) if path in found else (404, {}, b"{}")

    return answer


class Server:
    """An HTTP server on a loopback port that answers as it is told."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.headers = answer, list[Mapping[str, str]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.headers.append(dict(self.headers))
                status, headers, body = outer.answer(self.path)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(Server(answer))


Serve = Callable[[Answer], Server]


def flink(url: str, **fields: Any) -> EngineEndpoint:
    return EngineEndpoint(EngineKind.FLINK, url, "prod", **fields)


def connect(url: str, **fields: Any) -> EngineEndpoint:
    return EngineEndpoint(EngineKind.CONNECT, url, "prod", **fields)


def save(lease: Lease, *apis: EngineEndpoint) -> int:
    """Poll these APIs once and save what they report; return how many rows have changed."""
    collector = EnginesCollector(apis)
    answers, gaps = collector.poll(NOW_MS, every_s=0)
    collector.close()
    groups = {each.url: each.group for each in apis}
    return store.save_engines(lease, answers, groups, gaps=gaps, now_ms=NOW_MS)


def reasons() -> dict[str, str]:
    found = engines.api_troubles(Cluster.objects.get(name="prod").pk)
    return {url: each.reason for url, each in found.items()}


@pytest.mark.sql
def test_runs_and_connectors_are_kept_replaced_and_removed(take: Take, serve: Serve) -> None:
    manager, worker = serve(recorded("flink-2.1")), serve(recorded("connect-4.2"))
    lease, apis = take(store.NAME), (flink(manager.url), connect(worker.url, group="cdc"))
    assert save(lease, *apis) == 2
    run, connector = FlinkRunRecord.objects.get(), ConnectorRecord.objects.get()
    assert (run.name, run.state, run.version) == ("copy", "RUNNING", "2.1.0")
    assert (connector.name, connector.group, connector.version) == ("orders-source", "cdc", "4.2.0")
    assert save(lease, *apis) == 0, "nothing is new"
    worker.answer = lambda path: (200, {}, b'{"version": "4.2.0"}' if path == "/" else b"{}")
    assert save(lease, *apis) == 1
    assert not ConnectorRecord.objects.exists()
    store.remove_unnamed_apis({"prod": [worker.url]})
    assert not FlinkRunRecord.objects.exists()


def test_a_job_and_a_task_find_what_was_reported_of_them(take: Take, serve: Serve) -> None:
    manager, worker = serve(recorded("flink-2.1")), serve(recorded("connect-4.2"))
    save(take(store.NAME), flink(manager.url), connect(worker.url, group="cdc"))
    row = FlinkRunRecord.objects.get()
    job = flink_job(row.job_id)
    found = engines.run_of(job)
    assert found is not None
    assert found.completed is not None
    assert [each.parallelism for each in found.operators] == [2]
    assert engines.run_of(flink_job("0" * 32)) is None
    cluster = Cluster.objects.get(name="prod").pk
    connector = engines.connector_of(cluster, "cdc", "orders-source", "1")
    assert connector is not None
    assert connector.task is not None
    assert connector.task.state == "RUNNING"
    gone = engines.connector_of(cluster, "cdc", "orders-source", "2")
    assert gone is not None
    assert gone.task is None, "of an earlier number of tasks"
    assert engines.connector_of(cluster, "other", "orders-source", "1") is None


def flink_job(job_id: str) -> FlinkJob:
    prod = Cluster.objects.get(name="prod")
    return FlinkJob(cluster=prod, ident=job_id[:8], path=f"/{job_id}", job_id=job_id, seen_ms=NOW_MS, rev=1)


def test_an_api_that_is_still_being_asked_is_not_asked_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, released = [], threading.Event()

    def hold(path: str) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(path)
        released.wait(10)
        return 404, {}, b"{}"

    collector = EnginesCollector([flink(serve(hold).url)])
    monkeypatch.setattr(collecting, "_WAIT_S", 0.05)
    for _ in range(3):
        _, gaps = collector.poll(NOW_MS, every_s=0)
        (gap,) = gaps.values()
        assert "does not answer in time" in gap[1]
    monkeypatch.setattr(collecting, "_WAIT_S", 10)
    released.set()
    for number in (1, 2):
        _, gaps = collector.poll(NOW_MS, every_s=0)
        (gap,) = gaps.values()
        assert "with 404" in gap[1]
        assert len(asked) == number
    collector.close()


def slow(path: str) -> tuple[int, Mapping[str, str], bytes]:
    time.sleep(collecting.DEADLINE_S)
    return 200, {}, b"{}"


@cases(
    (lambda path: (200, {}, b"<html>"), "with no JSON: is it the URL of a Flink JobManager?", "a page"),
    (lambda path: (200, {}, b'{"version": "4"}'), "in a form that is not known", "another API"),
    (lambda path: (404, {}, b"{}"), "answers /v1/config with 404", "another path"),
    (lambda path: (401, {}, b""), "refuses the request (401): set headers", "credentials"),
    (lambda path: (302, {"Location": "http://127.0.0.1:1/"}, b""), "which is not followed", "a login"),
    (slow, "does not answer in time", "too slow"),
    (lambda path: (200, {}, b" " * 9_000_000), "more than 8,000,000 bytes", "too large"),
    (lambda path: (200, {}, b'{"flink-version": "9", "jobs": [{}]}'), "docs/engines.md", "newer"),
)
def test_an_api_that_cannot_be_read_is_a_gap_and_the_others_go_on(
    take: Take, serve: Serve, monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str, why: str
) -> None:
    monkeypatch.setattr(collecting, "DEADLINE_S", 0.5)
    bad, worker, lease = serve(answer), serve(recorded("connect-4.2")), take(store.NAME)
    save(lease, flink(bad.url), connect(worker.url))
    ((url, reason),) = reasons().items()
    assert (url, words in reason) == (bad.url, True), f"{why}: {reason}"
    assert reason.startswith(bad.url)
    assert ConnectorRecord.objects.get().state == "RUNNING"
    bad.answer = recorded("flink-1.20")
    save(lease, flink(bad.url), connect(worker.url))
    assert not reasons()


def test_what_was_reported_stays_while_an_api_is_away(take: Take, serve: Serve) -> None:
    lease = take(store.NAME)
    with Server(recorded("flink-2.1")) as manager:
        save(lease, flink(manager.url))
    save(lease, flink(manager.url))
    assert "does not answer (ConnectionRefusedError" in reasons()[manager.url]
    assert FlinkRunRecord.objects.get().state == "RUNNING"


def test_configured_headers_are_sent(take: Take, serve: Serve) -> None:
    worker = serve(recorded("connect-4.2"))
    save(take(store.NAME), connect(worker.url, headers={"Authorization": "Basic abc"}))
    assert {each["Authorization"] for each in worker.headers} == {"Basic abc"}


def test_the_task_polls_and_saves(take: Take, serve: Serve, settings: Any) -> None:
    manager = serve(recorded("flink-2.1"))
    clusters = {"prod": ClusterConfig("prod", {"bootstrap.servers": "x:1"})}
    limits = Limits(engines_every_s=0.01)
    settings.FENCELINE = Config(clusters=clusters, engines=[flink(manager.url)], limits=limits)
    take_turns(polls.poll_engines(take(store.NAME)), 0.5)
    made = polls.engine_collectors.pop("prod", None)
    assert made is not None
    made.close()
    assert FlinkRunRecord.objects.get().name == "copy"
    assert not GapRecord.objects.exists()
