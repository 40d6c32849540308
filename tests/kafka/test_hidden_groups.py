"""Proves that groups are read from their coordinators or from the log alone, where ACLs allow no more.

And that a group without either keeps its rows, with an error and a gap.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)

from dashboard.models import Collector, CommitRecord, GapRecord, Group
from sandbox.kafka import Broker, Sasl
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.group_commits import commit_offsets, write_records

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

USERS = {"blind": "x", "reader": "x", "asker": "x"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACLs, and a group on it."""
    folder = tmp_path_factory.mktemp("guarded")
    with Broker(folder, sasl=Sasl(users=USERS), authorizer=True) as broker:
        create_topics(broker.bootstrap, "t")
        write_records(broker.bootstrap, "t")
        commit_offsets(broker.bootstrap, "hidden", "t", p0=3)
        commit_offsets(broker.bootstrap, "hidden", "t", p0=5)
        set_acl(broker, "blind", ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
        set_acl(broker, "reader", ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
        set_acl(broker, "reader", ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)
        set_acl(broker, "asker", ResourceType.TOPIC, "t", AclOperation.DESCRIBE)
        set_acl(broker, "asker", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
        set_acl(broker, "asker", ResourceType.GROUP, "hidden", AclOperation.DESCRIBE)
        yield broker


def as_user(broker: Broker, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "x",
    }


def test_without_describe_on_groups_the_log_is_enough(guarded: Broker) -> None:
    collected = CollectedGroups(as_user(guarded, "reader"))
    collected.poll(2)
    row = collected.offset("hidden", "t", 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    assert row.commit_ms == CommitRecord.objects.get().commit_ms
    group = Group.objects.get()
    assert "no DESCRIBE on this group" in group.error
    assert (group.state, group.lag_hw) == ("", 5)
    assert not GapRecord.objects.filter(source="groups").exists()
    collected.close()


def test_without_read_on_the_topic_the_coordinators_are_enough(guarded: Broker) -> None:
    """Commit times are those of the first poll with an offset."""
    collected = CollectedGroups(as_user(guarded, "asker"), log=False)
    collected.poll(2)
    row = collected.offset("hidden", "t", 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    first_ms = row.commit_ms
    assert first_ms is not None
    collected.poll()
    assert collected.offset("hidden", "t", 0).commit_ms == first_ms
    group = Group.objects.get()
    assert (group.error, group.state) == ("", "Empty")
    collected.close()


def test_a_group_that_becomes_unavailable_keeps_its_rows_with_an_error_and_a_gap(guarded: Broker) -> None:
    allowed = CollectedGroups(as_user(guarded, "reader"))
    allowed.poll(2)
    Collector.objects.filter(name="consumer_offsets").update(seen_through_ms=1)
    allowed._log = False
    allowed.poll()
    group = Group.objects.get()
    assert "no DESCRIBE on this group" in group.error
    assert watch_offset(allowed) == 5
    assert [(gap.scope, gap.until_ms) for gap in GapRecord.objects.filter(source="groups")] == [
        ("group:hidden", None)
    ]
    allowed._log = True
    allowed.poll()
    assert GapRecord.objects.get(source="groups").until_ms is not None
    allowed.close()


def watch_offset(collected: CollectedGroups) -> int | None:
    return collected.offset("hidden", "t", 0).offset
