"""Proves that groups are read from their coordinators or from the log alone, where ACLs allow no more.

And that a group without either keeps its rows, with an error and a gap.
"""

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)

from dashboard.models import Collector, CommitRecord, GapRecord, Group
from sandbox.kafka import Broker
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.kafka.collected_groups import CollectedGroups
from tests.kafka.doctor_checks import signed_in
from tests.kafka.group_commits import commit_offsets, write_records

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

GROUP, TOPIC = "hidden", "hidden-topic"


@pytest.fixture(scope="module", autouse=True)
def _granted(acl_broker: Broker) -> None:
    """A group on a broker with ACLs, and who may see what of it."""
    create_topics(acl_broker.bootstrap, TOPIC)
    write_records(acl_broker.bootstrap, TOPIC)
    commit_offsets(acl_broker.bootstrap, GROUP, TOPIC, p0=3)
    commit_offsets(acl_broker.bootstrap, GROUP, TOPIC, p0=5)
    set_acl(acl_broker, "reader", ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
    set_acl(acl_broker, "reader", ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)
    set_acl(acl_broker, "asker", ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
    set_acl(acl_broker, "asker", ResourceType.TOPIC, "__consumer_offsets", AclOperation.DESCRIBE)
    set_acl(acl_broker, "asker", ResourceType.GROUP, GROUP, AclOperation.DESCRIBE)


def test_without_describe_on_groups_the_log_is_enough(acl_broker: Broker) -> None:
    collected = CollectedGroups(signed_in(acl_broker, "reader"))
    collected.poll(2)
    row = collected.offset(GROUP, TOPIC, 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    assert row.commit_ms == CommitRecord.objects.get(group_id=GROUP).commit_ms
    group = Group.objects.get(group_id=GROUP)
    assert "no DESCRIBE on this group" in group.error
    assert (group.state, group.lag_hw) == ("", 5)
    assert not GapRecord.objects.filter(source="groups", scope=f"group:{GROUP}").exists()
    collected.close()


def test_without_read_on_the_topic_the_coordinators_are_enough(acl_broker: Broker) -> None:
    """Commit times are those of the first poll with an offset."""
    collected = CollectedGroups(signed_in(acl_broker, "asker"), log=False)
    collected.poll(2)
    row = collected.offset(GROUP, TOPIC, 0)
    assert (row.offset, row.high_watermark) == (5, 10)
    first_ms = row.commit_ms
    assert first_ms is not None
    collected.poll()
    assert collected.offset(GROUP, TOPIC, 0).commit_ms == first_ms
    group = Group.objects.get(group_id=GROUP)
    assert (group.error, group.state) == ("", "Empty")
    collected.close()


def test_a_group_that_becomes_unavailable_keeps_its_rows_with_an_error_and_a_gap(acl_broker: Broker) -> None:
    allowed = CollectedGroups(signed_in(acl_broker, "reader"))
    allowed.poll(2)
    Collector.objects.filter(name="consumer_offsets").update(seen_through_ms=1)
    allowed._log = False
    allowed.poll()
    group = Group.objects.get(group_id=GROUP)
    assert "no DESCRIBE on this group" in group.error
    assert allowed.offset(GROUP, TOPIC, 0).offset == 5
    gaps = GapRecord.objects.filter(source="groups", scope=f"group:{GROUP}")
    assert [gap.until_ms for gap in gaps] == [None]
    allowed._log = True
    allowed.poll()
    assert gaps.get().until_ms is not None
    allowed.close()
