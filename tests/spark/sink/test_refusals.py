"""Proves what the sink refuses, on a real broker: each refusal names the folder and what to do."""

import uuid

import pytest

from spark_pipeline.sink.errors import Refused, SinkError
from tests.spark.sink.queries import FakeQuery

pytestmark = pytest.mark.kafka


def committed_once(query: FakeQuery, batches: int = 2) -> None:
    driver = query.driver(0)
    for batch in range(batches):
        attempt = query.begin(driver, batch)
        driver.commit(attempt, query.run_tasks(attempt, tasks=1))
        (query.folder / "commits" / str(batch)).write_text("v1\n{}")


def test_a_checkpoint_with_batches_and_no_ledger_is_refused(query: FakeQuery) -> None:
    (query.folder / "commits" / "0").write_text("v1\n{}")
    with pytest.raises(Refused, match=r"has batches .batch 1 is next. and no ledger.*adopt=True"):
        query.driver(1)
    assert not query.has_ledger()
    driver = query.driver(1, adopt=True)
    attempt = query.begin(driver, 1)
    driver.commit(attempt, query.run_tasks(attempt))
    identity = query.ledger.read_identity()
    assert identity is not None
    assert identity.first_batch == 1
    with pytest.raises(Refused, match="committed batch 1: the next one must be 2"):
        query.driver(0)


def test_a_ledger_of_another_query_is_refused(query: FakeQuery) -> None:
    committed_once(query)
    before, query.query_id = query.query_id, str(uuid.uuid4())
    query.write_metadata(query.query_id)
    with pytest.raises(Refused, match=f"belongs to query {before}.*metadata was lost"):
        query.driver(2)


def test_a_checkpoint_of_another_query_is_refused(query: FakeQuery) -> None:
    query.write_metadata(str(uuid.uuid4()))
    with pytest.raises(Refused, match=f"and this is query {query.query_id}"):
        query.driver(0)
    (query.folder / "metadata").unlink()
    with pytest.raises(Refused, match=r"is no checkpoint"):
        query.driver(0)


@pytest.mark.parametrize("asked", [0, 3])
def test_a_batch_out_of_order_is_refused(query: FakeQuery, asked: int) -> None:
    committed_once(query)
    with pytest.raises(Refused, match=f"asks for batch {asked}.*committed batch 1: the next one must be 2"):
        query.driver(asked)


def test_batches_without_data_are_no_gap(query: FakeQuery) -> None:
    committed_once(query)
    query.plan(2, control=True)
    assert query.driver(3).begin(3) is not None


def test_a_committed_batch_with_another_range_is_refused(query: FakeQuery) -> None:
    committed_once(query)
    query.plan(1, end=7_777)
    with pytest.raises(Refused, match="batch 1 is committed, and was to read something else now") as raised:
        query.driver(1)
    assert '"0": 20' in str(raised.value)
    assert '"0": 7777' in str(raised.value)


def test_a_batch_without_an_offset_log_entry_is_refused(query: FakeQuery) -> None:
    driver = query.driver(0)
    (query.folder / "offsets" / "0").unlink()
    with pytest.raises(Refused, match=r"offsets/0 is not there.*asyncProgressTrackingEnabled"):
        driver.begin(0)


def test_another_prefix_than_the_ledgers_is_refused(query: FakeQuery) -> None:
    committed_once(query)
    with pytest.raises(Refused, match="option prefix is 'other'"):
        query.driver(2, prefix="other")
    assert query.driver(2, prefix=query.topic).begin(2) is not None


@pytest.mark.parametrize("name", ["ledger.json", "0.0.decision"])
def test_an_unusable_ledger_file_is_refused(query: FakeQuery, name: str) -> None:
    committed_once(query, batches=1)
    path = query.folder / "kafka_exactly_once" / name
    path.write_bytes(path.read_bytes().replace(b'"v":1', b'"v":9'))
    with pytest.raises(SinkError, match=f"kafka_exactly_once/{name} cannot be used.*version 9"):
        query.driver(0)
