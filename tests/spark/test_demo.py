"""Proves the sandbox as a user meets it: the demo's Spark query, the scenes, and what pages say of them."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.stack import Stack
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

DEADLINE_S = 120
#: Spark starts last: beside another stack on two cores, its first batch came 47 s after all other parts.
FIRST_BATCH_S = 240


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def records(stack: Stack, topic: str, isolation: str) -> list[dict[str, Any]]:
    """Return every record of a topic, by its JSON value, up to the end that this isolation level has now."""
    settings = {
        "bootstrap.servers": stack.described()["kafka"],
        "group.id": "test",
        "isolation.level": isolation,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    values, left = [], len(partitions)
    while left:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            left -= 1
        else:
            values.append(json.loads(message.value() or b"{}"))
    consumer.close()
    return values


def orders(stack: Stack, isolation: str) -> set[str]:
    return {value["order"] for value in records(stack, "orders", isolation) if "order" in value}


def transaction(stack: Stack, name: str) -> Any:
    found = stack.api(f"transactions?q={name}")["items"]
    return found[0] if found else None


def test_stack_json_names_every_part_and_its_process(stack: Stack) -> None:
    described = stack.described()
    assert set(described) == {"url", "kafka", "redis", "database", "data_dir", "parts"}
    for part in described["parts"]:
        os.kill(part["pid"], 0)


def test_sparks_query_writes_what_was_committed_and_nothing_else(stack: Stack) -> None:
    aborted = wait_for(
        lambda: orders(stack, "read_uncommitted") - orders(stack, "read_committed"),
        "an aborted order",
        DEADLINE_S,
    )
    committed = orders(stack, "read_committed")
    wait_for(lambda: "finished its first batch" in stack.log(), "Spark's first batch", FIRST_BATCH_S)
    wait_for(
        lambda: (
            committed <= {value["order"] for value in records(stack, "orders_enriched", "read_committed")}
        ),
        "every committed order is enriched",
        DEADLINE_S,
    )
    enriched = records(stack, "orders_enriched", "read_committed")
    still_aborted = aborted - orders(stack, "read_committed")
    assert still_aborted.isdisjoint(value["order"] for value in enriched)
    assert all(value["total"] == value["quantity"] * value["price"] for value in enriched)


def test_an_abandoned_transaction_is_found_and_shown(stack: Stack) -> None:
    stack.manage("scene", "abandoned")
    row = wait_for(lambda: transaction(stack, "demo-abandoned"), "it is seen", DEADLINE_S)
    assert row["state"] == "Ongoing"
    assert row["timeout_ms"] == 600_000
    assert {"topic": "payments", "partition": 0} in row["partitions"]
    finding = "demo-abandoned is open for more than 10 s"
    wait_for(lambda: finding in stack.page("/"), "the Overview says so", DEADLINE_S)
    assert finding in stack.page("/transactions/sandbox/demo-abandoned")


def test_a_takeover_leaves_the_id_with_a_new_epoch(stack: Stack) -> None:
    stack.manage("scene", "zombie")
    # The abort of the first one's transaction may be shown for a moment before.
    row = wait_for(
        lambda: ended(stack, "demo-zombie", "CompleteCommit"), "the second instance commits", DEADLINE_S
    )
    assert row["producer_epoch"] >= 2


def test_a_timeout_leaves_the_id_aborted(stack: Stack) -> None:
    stack.manage("scene", "timeout")
    row = wait_for(
        lambda: ended(stack, "demo-timeout", "CompleteAbort"), "the coordinator aborts it", DEADLINE_S
    )
    assert row["timeout_ms"] == 3_000


def ended(stack: Stack, name: str, state: str) -> Any:
    row = transaction(stack, name)
    return row if row and row["state"] == state else None


@pytest.mark.soak
def test_safe_to_restart_does_not_change_with_the_phase_of_a_batch(stack: Stack) -> None:
    """Polls a real query over 20 batches; before, 25 polls were 18 times yes, 4 times no, 3 times unknown."""
    path = "queries/orders_enrich/safe_to_stop"
    wait_for(lambda: "finished its first batch" in stack.log(), "Spark's first batch", FIRST_BATCH_S)
    wait_for(lambda: stack.api(path)["safe"] is not None, "its checkpoint is read", DEADLINE_S)
    first = stack.api("queries/orders_enrich")["finished"]
    answers: Counter[tuple[object, ...]] = Counter()
    prepared = in_progress = 0

    def twenty_batches() -> bool:
        nonlocal prepared, in_progress
        told = stack.api(path)
        answers[told["safe"], told["kill"], told["retry_after_s"], told["verdict"], *told["reasons"]] += 1
        prepared += bool(told["prepared"])
        in_progress += bool(told["open_ids"])
        return bool(stack.api("queries/orders_enrich")["finished"] >= first + 20)

    wait_for(twenty_batches, "twenty batches", FIRST_BATCH_S)
    polls = sum(answers.values())
    print(f"{polls} polls, {prepared} amid a commit, {in_progress} amid a write: {answers}")
    assert list(answers) == [(True, True, None, "orders_enrich is safe to restart.")]


@pytest.mark.soak
def test_a_dead_driver_is_named_with_its_prepared_batch_until_it_is_back(stack: Stack) -> None:
    """The scene's driver dies by SIGKILL when it has prepared a batch, and stays away for 20 s."""
    wait_for(lambda: "finished its first batch" in stack.log(), "Spark's first batch", FIRST_BATCH_S)
    headlines: list[str] = []

    def poll() -> None:
        while not over.wait(0.5):
            headlines.append(stack.api("queries/orders_enrich/safe_to_stop")["headline"])

    over = threading.Event()
    polls = threading.Thread(target=poll)
    polls.start()
    try:
        stack.manage("scene", "driver-crash")
    finally:
        over.set()
        polls.join()
    gone = [each for each in headlines if "is prepared and the driver is gone (no heartbeat since" in each]
    assert gone, headlines
    assert all(": a restart finishes it until " in each for each in gone)


def test_an_unknown_scene_is_refused_with_the_names_that_exist(stack: Stack) -> None:
    with pytest.raises(AssertionError, match="choose one of zombie, timeout, abandoned"):
        stack.manage("scene", "nonsense")


def test_nothing_in_the_log_looks_like_a_fault(stack: Stack) -> None:
    log = stack.log()
    assert "Traceback" not in log
    assert "died" not in log
