"""Proves from end to end that what is stuck is found, by its right name, with who waits, and that it heals.

Scenes are played into a real stack; findings, partitions, groups and recoveries are read as a client would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.deployment import Stack
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

#: Five times the 5 s that a finding may take beyond its rule's limit, and the limits of the sandbox.
DEADLINE_S = 60
GROUP = "stuck-readers"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stuck"), DEMO="0") as stack:
        yield stack


def items(stack: Stack, noun: str, **where: str) -> list[dict[str, Any]]:
    query = "&".join(f"{key}={quote(value)}" for key, value in where.items())
    return list(stack.api(f"{noun}?{query}")["items"])


def finding(stack: Stack, rule: str, subject: str) -> dict[str, Any] | None:
    found = [each for each in items(stack, "findings") if each["rule"] == rule]
    return next((each for each in found if each["subject"] == subject), None)


def partition(stack: Stack, topic: str, number: int) -> dict[str, Any]:
    found = items(stack, "partitions", q=topic)
    return next((each for each in found if (each["topic"], each["partition"]) == (topic, number)), {})


def test_a_hanging_transaction_is_found_and_never_called_late(stack: Stack) -> None:
    stack.manage("scene", "hanging")
    subject = "partition:demo-hanging-0"
    found = wait_for(lambda: finding(stack, "hanging", subject), "the finding", DEADLINE_S)
    assert found["severity"] == "critical"
    row = partition(stack, "demo-hanging", 0)
    assert (row["verdict"], row["held"], row["leader"]) == ("hanging", 3, 1)
    (pinned,) = row["transactions"]
    assert pinned["transactional_id"].startswith("demo-stray-")
    assert not [
        each for each in items(stack, "findings") if each["rule"] in ("coordinator_overdue", "open_too_long")
    ]


def test_an_abandoned_transaction_is_found_with_those_who_wait_for_it(stack: Stack) -> None:
    stack.manage("scene", "abandoned")
    (abandoned,) = wait_for(lambda: items(stack, "transactions", state="open"), "it is open", DEADLINE_S)
    name, (held, *_) = abandoned["transactional_id"], abandoned["partitions"]
    topic, number = held["topic"], held["partition"]
    reader = Consumer({"bootstrap.servers": stack.described()["kafka"], "group.id": GROUP})
    try:
        row = wait_for(lambda: partition(stack, topic, number).get("transactions"), "its pin", DEADLINE_S)
        assert row[0]["transactional_id"] == name
        offset = row[0]["start_offset"]
        reader.commit(offsets=[TopicPartition(topic, number, offset)], asynchronous=False)
    finally:
        reader.close()
    found = wait_for(
        lambda: finding(stack, "open_too_long", f"transaction:{name}"), "the finding", DEADLINE_S
    )
    assert f"partition:{topic}-{number}" in found["affected"]
    wait_for(lambda: _waits(stack, topic, number), "the group that waits", DEADLINE_S)
    detail = stack.api(f"transactions/{quote(found['cluster'])}/{quote(name, safe='')}")
    assert detail["verdict"] in ("open", "late")
    assert [each["group"] for each in detail["waiting"]] == [GROUP]


def _waits(stack: Stack, topic: str, number: int) -> bool:
    group = next((each for each in items(stack, "groups", q=GROUP)), None)
    return group is not None and group["blocked"] == 1


def test_a_fence_ends_it_and_the_episode_says_what_was_lost(stack: Stack) -> None:
    (abandoned,) = items(stack, "transactions", state="open")
    name, held = abandoned["transactional_id"], abandoned["partitions"][0]
    pinned = partition(stack, held["topic"], held["partition"])
    # Playing it again takes the id over, which ends the first one, and leaves another one open.
    stack.manage("scene", "abandoned")
    episode = wait_for(lambda: _released(stack, name), "the episode", DEADLINE_S)
    assert episode["cause"] in ("takeover", "client_abort", "abort", "timeout")
    (lost,) = episode["lost"]
    assert (lost["topic"], lost["partition"]) == (held["topic"], held["partition"])
    assert (lost["first_offset"], lost["sure"]) == (pinned["transactions"][0]["start_offset"], True)
    assert [each["group"] for each in episode["waited"]] == [GROUP]


def _released(stack: Stack, name: str) -> dict[str, Any] | None:
    found = [each for each in items(stack, "recoveries") if each["transactional_id"] == name]
    done = [each for each in found if each["lost"] and each["lost_complete"]]
    return done[0] if done else None
