"""Proves that orphaned transactions are fenced: a late or dying attempt writes no more, and what
another ledger has open is left alone."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fenceline.facts import TransactionState
from spark_pipeline.sink.coordinator import Attempt
from spark_pipeline.sink.errors import SinkError
from spark_pipeline.sink.task import writer
from tests.spark.sink.queries import FakeQuery, open_ids, read, states, values_of
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka


def test_a_late_attempt_of_a_task_changes_nothing_and_is_ended(query: FakeQuery) -> None:
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    first = query.run_task(attempt, 0, ["lost attempt"])
    again = query.run_task(attempt, 0, values_of(0, 0), number=1)
    assert first is not None
    assert again is not None
    assert first.transactional_id != again.transactional_id
    driver.commit(attempt, [again])
    assert query.committed() == values_of(0, 0)
    assert open_ids(query) == []


class PausedTask:
    """A task that has begun to write, and is paused until it is released."""

    def __init__(self, query: FakeQuery, attempt: Attempt) -> None:
        self._let_go, self._query = threading.Event(), query
        self._pool = ThreadPoolExecutor(1)
        self._written = self._pool.submit(query.run_task, attempt, 0, self._values())
        wait_for(lambda: self._written.done() or open_ids(query), "it has begun to write")

    def _values(self) -> Iterator[str]:
        yield "first"
        assert self._let_go.wait(60)
        yield from ("too late" for _ in range(100))

    def refused(self) -> str:
        """Let it write on; return why it could not."""
        self._let_go.set()
        with self._pool, pytest.raises(SinkError) as refusal:
            self._written.result(60)
        return str(refusal.value)


def test_a_running_copy_of_a_task_is_fenced_when_its_transaction_is_ended(
    query: FakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_STOPPED_S", 0.0)
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    copy = PausedTask(query, attempt)
    done = query.run_task(attempt, 0, values_of(0, 0), number=1)
    assert done is not None
    driver.commit(attempt, [done])
    assert "_FENCED" in copy.refused()
    assert open_ids(query) == []
    assert query.committed() == values_of(0, 0)


def test_a_task_whose_query_was_stopped_waits_for_its_end_and_logs_nothing(
    query: FakeQuery, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(writer, "_STOPPED_S", 0.2)
    driver = query.driver(0)
    attempt = query.begin(driver, 0)
    task = PausedTask(query, attempt)
    capfd.readouterr()
    driver.abort(attempt, [], "the query was stopped")
    began = time.monotonic()
    text = task.refused()
    assert time.monotonic() - began >= 0.2
    assert "Its own driver has rolled the batch back" in text
    assert "transaction_timeout_ms" not in text
    # Clients of other tests in this process may lose their brokers meanwhile.
    own, lines = query.options["kafka.bootstrap.servers"], capfd.readouterr().err.splitlines()
    assert [line for line in lines if "://" not in line or own in line] == []
    assert query.committed() == []


def test_a_task_whose_driver_was_taken_over_logs_why_it_cannot_go_on(
    query: FakeQuery, capfd: pytest.CaptureFixture[str]
) -> None:
    task = PausedTask(query, query.begin(query.driver(0), 0))
    query.driver(0)
    text = task.refused()
    assert "by whoever took its id over" in text
    assert "TXNERR" in capfd.readouterr().err


def test_a_task_that_outlasts_its_transaction_fails_with_the_reason(
    query: FakeQuery, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = query.driver(0, timeout_ms=2_000)
    attempt = query.begin(driver, 0)
    task = PausedTask(query, attempt)
    wait_for(lambda: not open_ids(query), "its timeout has aborted it")
    text = task.refused()
    assert "TXNERR" in capfd.readouterr().err
    assert "partition 0" in text
    assert "raise transaction_timeout_ms" in text
    driver.abort(attempt, [], text)
    assert open_ids(query) == []
    assert query.committed() == []


def test_transactions_of_older_generations_are_ended_and_others_stay_open(
    query: FakeQuery, tmp_path: Path
) -> None:
    driver = query.driver(0)
    stray = query.run_task(query.begin(driver, 0), 5, ["stray"])
    other = FakeQuery(tmp_path / "other", query.options["kafka.bootstrap.servers"], query.topic)
    theirs = other.run_task(other.begin(other.driver(0), 0), 5, ["theirs"])
    assert stray is not None
    assert theirs is not None
    query.driver(0)
    both = stray.transactional_id, theirs.transactional_id
    assert states(query, *both) == [TransactionState.EMPTY, TransactionState.ONGOING], "ours is fenced"
    assert read(query.options["kafka.bootstrap.servers"], query.topic) == []
