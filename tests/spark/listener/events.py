"""Events as Spark hands them to a listener, made of what a real Spark has reported; and a pace for tests."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

from spark_listener.emit import Pace
from spark_listener.listener import FencelineListener
from tests.db.listener_posts import QUERY, RUN, batch_progress

#: So that no test waits for a pause that is meant for people.
QUICK = Pace(
    every=0.02, first_pause=0.05, longest_pause=0.2, refused_pause=0.2, timeout=20, adopt_every=0.1,
    alive_every=600,
)  # fmt: skip
TOKEN = "a token that may ingest"
#: Stands for the number of the batch in what is made into many.
NUMBER = 123_454_321


def started(query: str = QUERY, run: str = RUN) -> Any:
    return SimpleNamespace(id=query, runId=run, name="orders", timestamp="2026-11-22T02:43:50.778Z")


def terminated(query: str = QUERY, run: str = RUN, exception: str | None = None) -> Any:
    return SimpleNamespace(id=query, runId=run, exception=exception, errorClassOnException=None)


@cache
def _template(kind: str) -> str:
    return json.dumps(batch_progress(NUMBER, kind=kind))


def finished(number: int, *, query: str = QUERY, run: str = RUN, kind: str = "kafka") -> Any:
    """Return the event of a batch that is done, with a duration of its own."""
    text = _template(kind).replace(QUERY, query).replace(RUN, run).replace(str(NUMBER), str(number))
    text = text.replace('"addBatch": ', f'"addBatch": {number * 104_729 % 50 + 1}')
    return SimpleNamespace(progress=SimpleNamespace(id=query, runId=run, json=text))


def call_listener(listener: FencelineListener, numbers: range, **options: Any) -> None:
    """Let batches with these numbers be done."""
    for number in numbers:
        listener.onQueryProgress(finished(number, **options))
