"""Proves what is read of the REST APIs of engines, from answers of real ones (tests/data/capture_engines.py),
and that no other answer does any harm."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.engines.connect import ConnectorTask, connector_statuses
from fenceline.engines.flink.job_status import FlinkOperator, flink_run, job_ids

ANSWERS = Path(__file__).parents[1] / "data" / "engines"
UNEXPECTED = (ValueError, KeyError, TypeError, AttributeError)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


def answers(name: str) -> dict[str, Any]:
    return dict(json.loads((ANSWERS / f"{name}.json").read_text()))


def status(**fields: Any) -> dict[str, Any]:
    found = answers("connect-4.2")["/connectors?expand=status&expand=info"]
    found["orders-source"]["status"] |= fields
    return dict(found)


@pytest.mark.parametrize("version", ["1.20", "2.1"])
def test_a_running_job_is_read_with_its_operators_and_checkpoints(version: str) -> None:
    found = answers(f"flink-{version}")
    (ident,) = job_ids(found["/v1/jobs/overview"])
    run = flink_run(found[f"/v1/jobs/{ident}"], found[f"/v1/jobs/{ident}/checkpoints"])
    assert (run.job_id, run.name, run.state, run.ended_ms) == (ident, "copy", "RUNNING", None)
    assert run.operators == (FlinkOperator("Source: in -> Sink: Writer -> Sink: Committer", 2, "RUNNING"),)
    assert run.completed is not None
    assert run.counts["completed"] >= run.completed.checkpoint_id >= 2
    assert run.completed.at_ms > run.started_ms
    assert (run.failed, run.restored) == (None, None)


def test_a_failed_and_a_restored_checkpoint_are_read() -> None:
    found = answers("flink-2.1")
    (ident,) = job_ids(found["/v1/jobs/overview"])
    checkpoints = found[f"/v1/jobs/{ident}/checkpoints"]
    message = "Checkpoint expired before completing.\n\tat org.apache…"
    checkpoints["latest"] |= {
        "failed": {"id": 7, "failure_timestamp": 12, "failure_message": message},
        "restored": {"id": 5, "restore_timestamp": 9},
    }
    run = flink_run(found[f"/v1/jobs/{ident}"] | {"end-time": 99}, checkpoints)
    assert run.failed is not None
    assert (run.failed.checkpoint_id, run.failed.at_ms) == (7, 12)
    assert run.failed.reason == "Checkpoint expired before completing."
    assert run.restored is not None
    assert (run.restored.checkpoint_id, run.ended_ms) == (5, 99)


def test_a_connector_is_read_with_its_tasks() -> None:
    (found,) = connector_statuses(status())
    assert (found.name, found.kind, found.state) == ("orders-source", "source", "RUNNING")
    assert found.connector.endswith("MirrorSourceConnector")
    assert [(each.number, each.state) for each in found.tasks] == [(0, "RUNNING"), (1, "RUNNING")]


def test_a_failed_task_has_the_first_line_of_its_trace() -> None:
    trace = "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized\n\tat …\n"
    task = {"id": 3, "state": "FAILED", "worker_id": "w:1", "trace": trace}
    (found,) = connector_statuses(status(tasks=[task]))
    assert found.tasks == (ConnectorTask(3, "FAILED", "w:1", trace.partition("\n")[0]),)


@given(JSON)
def test_any_other_answer_is_an_error_that_is_expected(answer: Any) -> None:
    for read in (job_ids, connector_statuses, lambda some: flink_run(some, some)):
        try:
            read(answer)
        except UNEXPECTED:
            continue
        assert answer in ({}, {"jobs": []})
