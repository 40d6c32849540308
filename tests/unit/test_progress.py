"""Proves that events are read as Spark 4.2 writes them, and that nothing in one makes reading raise."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.decode.ingest_payload import EventKind
from fenceline.decode.ingest_payload import decode_post as read_post
from fenceline.decode.progress import UnusableEvent, decode_progress
from fenceline.spark.records import BatchProgress
from tests.cases import cases

CAPTURED = Path(__file__).parents[1] / "data" / "progress" / "spark-4.2.0.jsonl"
EVENTS: list[tuple[str, dict[str, Any]]] = [
    (row["query"], row["progress"]) for row in map(json.loads, CAPTURED.read_text().splitlines())
]
TOLD_MS = 1_795_000_000_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def captured_event(kind: str, number: int = 0) -> dict[str, Any]:
    return copy.deepcopy([progress for name, progress in EVENTS if name == kind][number])


def batch(document: object) -> BatchProgress:
    found = decode_progress(document, received_ms=TOLD_MS)
    assert found.progress is not None, found.why
    return found.progress


@pytest.mark.parametrize(("kind", "document"), EVENTS)
def test_everything_in_a_progress_event_is_read(kind: str, document: dict[str, Any]) -> None:
    found = decode_progress(document, received_ms=TOLD_MS)
    assert found.strange == {}
    assert found.progress is not None
    told = found.progress
    assert (told.query_id, told.run_id, told.name) == (document["id"], document["runId"], f"capture_{kind}")
    assert told.batch_id == document["batchId"]
    assert told.durations == document["durationMs"]
    assert told.input_rows == document["numInputRows"]
    assert [each.description for each in told.sources] == [
        each["description"] for each in document["sources"]
    ]
    for each, source in zip(told.sources, document["sources"], strict=True):
        assert json.loads(each.end or "null") == source["endOffset"]
    for operator, its in zip(told.operators, document["stateOperators"], strict=True):
        assert operator.name == its["operatorName"]
        assert operator.rows_total == its["numRowsTotal"]
        assert operator.custom == its["customMetrics"]


def test_kafkas_offsets_are_written_as_the_offset_log_writes_them() -> None:
    source = batch(captured_event("kafka", 1)).sources[0]
    assert source.start == '{"orders":{"0":2,"1":2,"2":2}}'
    assert batch(captured_event("kafka")).sources[0].start is None
    assert set(source.metrics) >= {"minOffsetsBehindLatest", "maxOffsetsBehindLatest"}


def test_the_absence_of_a_watermark_or_of_counted_output_rows_is_none() -> None:
    assert batch(captured_event("stateful")).watermark_ms == 0
    assert batch(captured_event("stateful", 1)).watermark_ms
    assert batch(captured_event("kafka")).watermark_ms is None
    assert (batch(captured_event("each")).output_rows, batch(captured_event("kafka")).output_rows) == (
        None,
        6,
    )


@pytest.mark.parametrize("told", [-1, None, "absent"])
def test_rows_that_spark_does_not_count_are_unknown_and_never_zero(told: object) -> None:
    """A batch reads no rows only where Spark says 0; foreachBatch and some sources are reported as -1, or
    not at all.
    """
    document = captured_event("kafka")
    for part in (document, document["sources"][0]):
        part["numInputRows"] = told
    document["sink"]["numOutputRows"] = told
    if told == "absent":
        for part in (document, document["sources"][0]):
            del part["numInputRows"]
        del document["sink"]["numOutputRows"]
    found = batch(document)
    assert (found.input_rows, found.sources[0].input_rows, found.output_rows) == (None, None, None)
    document["sources"] = []
    assert batch(document).input_rows is None
    assert batch(document | {"numInputRows": 0}).input_rows == 0


def test_rows_of_state_or_of_one_source_that_spark_does_not_count_are_unknown() -> None:
    counts = "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark"
    for uncounted in (-1, None):
        document = captured_event("stateful")
        document["stateOperators"][0] |= dict.fromkeys(counts, uncounted)
        operator = batch(document).operators[0]
        assert {operator.rows_total, operator.rows_updated, operator.rows_removed} == {None}
        assert operator.rows_dropped_by_watermark is None
    document = captured_event("kafka")
    del document["numInputRows"]
    document["sources"] += [document["sources"][0] | {"numInputRows": -1}]
    assert batch(document).input_rows is None


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf, "NaN", "Infinity", None])
def test_a_rate_without_a_figure_is_none_and_no_error(rate: object) -> None:
    found = decode_progress(captured_event("kafka") | {"inputRowsPerSecond": rate}, received_ms=TOLD_MS)
    assert found.progress is not None
    assert found.progress.input_rate is None
    assert found.strange == {}


def test_what_older_versions_leave_out_is_filled_in() -> None:
    document = captured_event("kafka")
    for key in ("batchDuration", "numInputRows", "timestamp", "eventTime", "sink", "name"):
        document.pop(key, None)
    told = batch(document)
    assert told.duration_ms == document["durationMs"]["triggerExecution"]
    assert told.input_rows == 6
    assert told.started_ms == TOLD_MS - told.duration_ms
    assert (told.sink, told.output_rows, told.name) == ("", None, "")


@cases(
    ({"numInputRows": "many"}, "numInputRows: not a whole number"),
    ({"numInputRows": True}, "numInputRows: not a whole number"),
    ({"numInputRows": 10**30}, "numInputRows: out of range"),
    ({"processedRowsPerSecond": 10**400}, "processedRowsPerSecond: out of range"),
    ({"processedRowsPerSecond": []}, "processedRowsPerSecond: not a number"),
    ({"timestamp": "yesterday"}, "timestamp: not a time"),
    ({"durationMs": [1]}, "durationMs: not an object"),
    ({"durationMs": {"addBatch": None}}, "durationMs: not a whole number"),
    ({"sources": {}}, "sources: not a list"),
    ({"sources": [7]}, "sources: not readable"),
    ({"sources": [{"endOffset": "x" * 3_000_000}]}, "endOffset: too large"),
    ({"sources": [{"description": 5}]}, "text: not a string"),
)
def test_what_cannot_be_read_is_counted_by_reason(change: dict[str, Any], reason: str) -> None:
    found = decode_progress(captured_event("kafka") | change, received_ms=TOLD_MS)
    assert found.progress is not None
    assert found.strange == {reason: 1}


@cases(
    ({"id": "7"}, "id is no UUID"),
    ({"runId": None}, "runId is no UUID"),
    ({"batchId": -1}, "batchId is no batch's number"),
    ({"batchId": 10**19}, "batchId is no batch's number"),
    ({"batchId": "7"}, "batchId is no batch's number"),
)
def test_an_event_of_no_query_is_refused_and_text_escaped_for_every_database(
    change: dict[str, Any], why: str
) -> None:
    found = decode_progress(captured_event("kafka") | change, received_ms=TOLD_MS)
    assert (found.progress, found.why) == (None, why)
    assert batch(captured_event("kafka") | {"name": "a\0b\ud800c"}).name == "a\ufffdb?c"


@given(JSON)
def test_reading_any_document_raises_nothing(document: object) -> None:
    decode_progress(document, received_ms=TOLD_MS)


@given(st.sampled_from(EVENTS), st.data())
def test_reading_a_changed_event_raises_nothing(event: tuple[str, Any], data: st.DataObject) -> None:
    document = copy.deepcopy(event[1])
    at: Any = document
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or data.draw(st.booleans()):
            at[key] = data.draw(JSON)
            break
        at = at[key]
    found = decode_progress(document, received_ms=TOLD_MS)
    json.dumps([found.strange, found.why])


def post(*events: object, **members: object) -> dict[str, Any]:
    return {"v": 1, "cluster": None, "sent_ms": TOLD_MS, "report": {}, "events": list(events), **members}


def ids(kind: str = "started", **members: object) -> dict[str, Any]:
    document = captured_event("kafka")
    head = {"seq": 1, "at_ms": TOLD_MS, "kind": kind, "id": document["id"], "runId": document["runId"]}
    return {**head, **members}


def test_each_kind_of_event_is_read() -> None:
    progress = {"seq": 2, "at_ms": TOLD_MS, "kind": "progress", "progress": captured_event("kafka")}
    started = ids(name="orders", timestamp="2026-11-22T02:43:50.778Z")
    idle = ids("idle", timestamp="2026-11-22T02:43:51.778Z")
    ended = ids("terminated", exception="it broke", errorClass="BROKEN")
    found = read_post(post(started, progress, idle, ended))
    assert [each.kind for each in found.events] == list(EventKind)
    first, second, third, last = found.events
    assert (first.name, first.since_ms, third.since_ms) == ("orders", 1_795_315_430_778, 1_795_315_431_778)
    assert (second.progress is not None, last.exception) == (True, "it broke")
    assert found.refused == ()


def test_a_bad_event_does_not_affect_other_events_of_its_post() -> None:
    found = read_post(
        post(ids(), 7, ids(kind="exploded", seq=3), ids(seq=4, id="x"), ids(seq=5, at_ms=-1), ids())
    )
    assert len(found.events) == 2
    assert [seq for seq, _ in found.refused] == [None, 3, 4, 5]


@pytest.mark.parametrize("document", [None, [], {}, {"events": {}}, "x", 5])
def test_a_document_that_is_no_post_is_refused(document: object) -> None:
    with pytest.raises(UnusableEvent):
        read_post(document)


@given(JSON, JSON, JSON)
def test_reading_a_changed_post_raises_nothing(one: object, other: object, event: object) -> None:
    read_post(
        {"cluster": one, "sent_ms": other, "report": {"alive": one, "dropped": other}, "events": [event]}
    )
    read_post(post(ids(name=one, timestamp=other), ids("terminated", exception=one, errorClass=other)))
