"""Poll the REST APIs of one cluster's engines, all at once, each with a deadline.

An unreachable, slow or unknown API is its own gap and does not affect the others.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple, Protocol

from collectors.engines.json_api import ApiUnavailable, JsonApi
from collectors.gaps import GapStarts
from collectors.rate_limit import PollTimer
from fenceline.engines.answers import EngineAnswer, EngineKind
from fenceline.engines.connect.connectors import connector_statuses
from fenceline.engines.flink.job_status import flink_run, job_ids

#: Seconds for one API in a poll, and seconds to wait for all of them.
DEADLINE_S, _WAIT_S = 4.0, 5.0
#: Maximum runs of a JobManager to read, the newest ones.
MOST_RUNS = 50
#: Prefix of gap scopes that name an API.
API = "api:"
_STATUS_PATH = "/connectors?expand=status&expand=info"
_UNEXPECTED = (ValueError, KeyError, TypeError, AttributeError)


class EngineApi(Protocol):
    """An API from the configuration."""

    @property
    def kind(self) -> EngineKind: ...
    @property
    def url(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class ObservedEngines(NamedTuple):
    """The result of a poll: the answers, and by scope the start and reason of missing ones."""

    answers: Sequence[EngineAnswer]
    gaps: Mapping[str, tuple[int, str]]


class EnginesCollector(PollTimer):
    """Polls the APIs of one cluster."""

    def __init__(self, apis: Sequence[EngineApi]) -> None:
        super().__init__()
        self._apis = list(apis)
        self._gap_starts = GapStarts()
        #: One thread per API: a slow API keeps only its own.
        self._pool = ThreadPoolExecutor(max(1, len(self._apis)), "engines")
        self._running: dict[str, Future[EngineAnswer]] = {}

    def poll(self, now_ms: int, *, every_s: float) -> ObservedEngines:
        """Query all APIs; the next poll is due after `every_s`."""
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
        return ObservedEngines(answers, self._gap_starts.date_gaps(trouble, now_ms))

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
        path = _STATUS_PATH
        connectors = connector_statuses(api.get(path, end))
    except _UNEXPECTED as error:
        raise api.unexpected(path, error) from None
    return EngineAnswer(api.url, version, connectors=connectors)
