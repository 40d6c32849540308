"""Posts of a listener, as its emitter writes them, made of progress that a real Spark reported."""

import copy
import json
from pathlib import Path
from typing import Any

CAPTURED = Path(__file__).parents[1] / "data" / "progress" / "spark-4.2.0.jsonl"
_TEMPLATES: dict[str, dict[str, Any]] = {
    row["query"]: row["progress"] for row in map(json.loads, CAPTURED.read_text().splitlines())
}
QUERY, OTHER_QUERY = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
RUN, LATER_RUN = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"


def batch_progress(number: int, *, query: str = QUERY, run: str = RUN, kind: str = "kafka") -> dict[str, Any]:
    """Return what a real Spark reported of a batch, as if it were this one."""
    document = copy.deepcopy(_TEMPLATES[kind])
    return document | {"id": query, "runId": run, "name": "orders", "batchId": number}


def batch_event(number: int, at_ms: int, **options: Any) -> dict[str, Any]:
    """Return the event of a finished batch."""
    return {
        "seq": number + 1,
        "at_ms": at_ms,
        "kind": "progress",
        "progress": batch_progress(number, **options),
    }


def listener_event(
    kind: str, at_ms: int, *, query: str = QUERY, run: str = RUN, **members: Any
) -> dict[str, Any]:
    """Return an event of another kind."""
    return {"seq": 1, "at_ms": at_ms, "kind": kind, "id": query, "runId": run, **members}


def listener_post(
    *events: object,
    sent_ms: int,
    cluster: str | None = None,
    alive: list[list[str]] | None = None,
    **report: Any,
) -> dict[str, Any]:
    """Return a post of these events."""
    about = {
        "listener": "1.0.0",
        "spark": "4.2.0",
        "dropped": 0,
        "spooled": 0,
        "alive": alive or [],
        **report,
    }
    return {"v": 1, "cluster": cluster, "sent_ms": sent_ms, "report": about, "events": list(events)}
