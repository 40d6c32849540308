"""Poll the REST APIs of Flink's JobManagers and Kafka Connect's workers, all at once, each with a deadline.

An unreachable, slow or unknown API is its own gap and does not affect the others. Requests follow no
redirects and use no proxy, so that no other host gets one.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import Any, Protocol
from urllib.parse import urlsplit

from collectors.polling import GapStarts, PollTimer
from fenceline.engines.status import EngineAnswer, EngineKind, connector_statuses, flink_run, job_ids

#: Seconds for one API in a poll, and seconds to wait for all of them.
DEADLINE_S, _WAIT_S = 4.0, 5.0
#: Maximum runs of a JobManager to read, the newest ones.
MOST_RUNS = 50
#: Prefix of gap scopes that name an API.
API = "api:"
_UNEXPECTED = (ValueError, KeyError, TypeError, AttributeError)
#: Maximum bytes of an answer.
LARGEST = 8_000_000
_CHUNK = 65_536
_OK, _REDIRECTS, _REFUSALS = 200, range(300, 400), (401, 403)


class EngineApi(Protocol):
    @property
    def kind(self) -> EngineKind: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class EnginesCollector(PollTimer):
    def __init__(self, apis: Sequence[EngineApi]) -> None:
        super().__init__()
        self._apis = list(apis)
        self._gap_starts = GapStarts()
        #: One thread per API: a slow API keeps only its own.
        self._pool = ThreadPoolExecutor(max(1, len(self._apis)), "engines")
        self._running: dict[str, Future[EngineAnswer]] = {}

    def poll(
        self, now_ms: int, *, every_s: float
    ) -> tuple[Sequence[EngineAnswer], Mapping[str, tuple[int, str]]]:
        """Query all APIs; return the answers, and by scope the start and reason of missing ones.

        The next poll is due after `every_s`.
        """
        self.set_due(time.monotonic(), every_s)
        for api in self._apis:
            if api.url not in self._running:
                self._running[api.url] = self._pool.submit(read_engine, api)
        wait(self._running.values(), _WAIT_S)
        answers, trouble = [], {}
        for url, running in list(self._running.items()):
            if not running.done():
                trouble[API + url] = f"{url} does not answer in time: look at its load and at the network"
                continue
            del self._running[url]
            try:
                answers.append(running.result())
            except ApiUnavailable as error:
                trouble[API + url] = str(error)
        return answers, self._gap_starts.date_gaps(trouble, now_ms)

    def close(self) -> None:
        """Send no more requests; a running request ends by its deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def read_engine(api: EngineApi) -> EngineAnswer:
    """Return an API's report. Raises ApiUnavailable."""
    end = time.monotonic() + DEADLINE_S
    if api.kind is EngineKind.FLINK:
        return _read_job_manager(JsonApi(api.url, api.headers, "a Flink JobManager"), end)
    return _read_connect(JsonApi(api.url, api.headers, "a Kafka Connect worker"), end)


def _read_job_manager(api: JsonApi, end: float) -> EngineAnswer:
    path = "/v1/config"
    try:
        version = str(api.get(path, end)["flink-version"])
        path = "/v1/jobs/overview"
        runs = []
        for ident in job_ids(api.get(path, end))[:MOST_RUNS]:
            path = f"/v1/jobs/{ident}"
            runs.append(flink_run(api.get(path, end), api.get(f"{path}/checkpoints", end)))
    except _UNEXPECTED as error:
        raise api.unexpected(path, error) from None
    return EngineAnswer(api.url, version, runs=runs)


def _read_connect(api: JsonApi, end: float) -> EngineAnswer:
    path = "/"
    try:
        version = str(api.get(path, end)["version"])
        path = "/connectors?expand=status&expand=info"
        connectors = connector_statuses(api.get(path, end))
    except _UNEXPECTED as error:
        raise api.unexpected(path, error) from None
    return EngineAnswer(api.url, version, connectors=connectors)


class ApiUnavailable(Exception):
    """An API cannot be read; the text says what, where and what to do."""


class JsonApi:
    """A JSON API by its URL; `product` is the expected server, for messages."""

    def __init__(self, url: str, headers: Mapping[str, str], product: str) -> None:
        self.url, self._headers, self._product = url.rstrip("/"), headers, product

    def get(self, path: str, end: float) -> Any:
        """Return the JSON at a path before `time.monotonic()` passes `end`. Raises ApiUnavailable."""
        try:
            status, body = self._request(path, end)
        except TimeoutError:
            raise self._failure("does not answer in time: look at its load and at the network") from None
        except (OSError, http.client.HTTPException) as error:
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            raise self._failure(f"does not answer ({why}): start it, or correct the URL") from None
        if status in _REFUSALS:
            raise self._failure(f"refuses the request ({status}): set headers for it") from None
        if status in _REDIRECTS:
            raise self._failure(f"redirects ({status}), which is not followed: name the address itself")
        if status != _OK:
            raise self._failure(f"answers {path} with {status}: is it the URL of {self._product}?")
        try:
            return json.loads(body)
        except ValueError:
            raise self._failure(f"answers {path} with no JSON: is it the URL of {self._product}?") from None

    def unexpected(self, path: str, error: Exception) -> ApiUnavailable:
        why = f"{type(error).__name__}: {error}"[:100]
        return self._failure(
            f"answers {path} in a form that is not known ({why}): is it the URL of {self._product}, and of a "
            "version that docs/engines.md names?"
        )

    def _failure(self, what: str) -> ApiUnavailable:
        return ApiUnavailable(f"{self.url} {what}")

    def _request(self, path: str, end: float) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=_left_s(end), context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_left_s(end))
        with closing(connection):
            headers = {"Accept": "application/json", **self._headers}
            connection.request("GET", f"{parts.path}{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, self._body(connection, answer, end)

    def _body(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, end: float
    ) -> bytes:
        """Read an answer to its end: each part gets the remaining time, not the whole timeout."""
        body = bytearray()
        while True:
            if connection.sock is not None:
                connection.sock.settimeout(_left_s(end))
            _left_s(end)
            part = answer.read1(_CHUNK)
            if not part:
                return bytes(body)
            body += part
            if len(body) > LARGEST:
                raise self._failure(f"answers with more than {LARGEST:,} bytes: that is not read")


def _left_s(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
