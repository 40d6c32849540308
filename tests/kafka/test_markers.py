"""Proves that an abort marker ends what hangs, on each version of the broker, that none is written for what
has ended, is another one's or is owned by now, and that the cluster's refusal names the missing grant.
Kafka's own tools show what is open, abort on request, and grant what was printed."""

import shlex
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from py4j.java_gateway import JavaGateway

from dashboard.actions import follow_up
from dashboard.models import Action
from dashboard.runtime import loop
from fenceline import facts
from fenceline.plans.plan import Act
from sandbox.kafka import Broker
from sandbox.scenes.wire import Identity
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.java.clients import JavaAdmin
from tests.java.tools import KafkaTool
from tests.kafka.action_worker import (
    configured_cluster,
    execute_plan,
    execute_until_killed,
    kill_at,
    make_plan,
    outcomes,
    result_texts,
)
from tests.kafka.collected_partitions import abort
from tests.kafka.doctor_checks import signed_in
from tests.kafka.producers import open_in
from tests.kafka.raw_producers import RawProducer
from tests.kafka.stray_records import identity_of, verification_disabled, write_stray_records
from tests.kafka.topic_records import end_offset
from tests.waiting import wait_for
from transaction_admin.api import Ended, Marker
from transaction_admin.kafka_python import TransactionAdmin

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


class Hanging:
    """A partition with records of a transaction that is unknown to every coordinator."""

    def __init__(self, broker: Broker, admin: JavaAdmin) -> None:
        self.broker, self.admin = broker, admin
        self.topic = f"hangs-{uuid.uuid4().hex[:8]}"
        self.where = (self.topic, 0)
        create_topics(broker.bootstrap, self.topic, partitions=1)
        self.identity = identity_of(broker, self.topic)

    @property
    def name(self) -> str:
        """The partition."""
        return f"{self.topic}-0"

    def strays(self) -> None:
        with verification_disabled(self.broker):
            write_stray_records(self.broker, self.topic, self.identity, self.where, records=3)

    def is_open(self) -> bool:
        said = self.admin.describe_producers([self.where])[self.where]
        return any(start is not None for _, _, start in said)

    def end(self) -> int:
        return end_offset(self.broker.bootstrap, self.topic, committed=False)

    def lso(self) -> int:
        return end_offset(self.broker.bootstrap, self.topic, committed=True)


@pytest.fixture
def hanging(kafka: Broker, java: JavaGateway) -> Iterator[Hanging]:
    with (
        JavaAdmin(java, kafka.bootstrap) as admin,
        configured_cluster({"bootstrap.servers": kafka.bootstrap}),
    ):
        made = Hanging(kafka, admin)
        made.strays()
        yield made


def test_a_marker_ends_a_hanging_transaction(hanging: Hanging) -> None:
    plan = make_plan(Act.ABORT_MARKER, hanging.name, force=False)
    assert (hanging.lso(), hanging.end()) == (0, 3)
    row = execute_plan(plan)
    assert (row.state, outcomes(row)) == (Action.State.DONE, ["done"]), result_texts(row)
    assert row.results[0]["parts"] == [{"where": hanging.name, "code": 0, "words": "abort marker written"}]
    assert not hanging.is_open()
    wait_for(lambda: (hanging.lso(), hanging.end()) == (4, 4), "readers go on behind the marker")
    again = execute_plan(plan)
    assert (again.state, hanging.end()) == (Action.State.STALE, 4), "it appends no useless marker"
    assert "it has ended" in result_texts(again)


def test_a_marker_written_by_another_client_is_not_repeated(hanging: Hanging, tool: KafkaTool) -> None:
    plan = make_plan(Act.ABORT_MARKER, hanging.name)
    abort(tool, *hanging.where, start_offset=0)
    row = execute_plan(plan)
    assert (outcomes(row), hanging.end()) == (["stale"], 4)
    hanging.identity = Identity(hanging.identity.producer_id, hanging.identity.epoch + 1)
    hanging.strays()
    row = execute_plan(plan)
    assert (outcomes(row), hanging.end()) == (["stale"], 7)
    assert "another producer took it over: epoch 0 → 1" in result_texts(row)


def test_an_end_right_before_the_request_is_detected(hanging: Hanging) -> None:
    marker = Marker(facts.TopicPartition(*hanging.where), *hanging.identity, 0)

    def end(step: str, subject: str) -> None:
        if step == "WriteTxnMarkers":
            with closing(TransactionAdmin({"bootstrap.servers": hanging.broker.bootstrap})) as admin:
                assert admin.write_abort_marker(marker, leader=hanging.broker.node_id) == Ended(0, "")

    row = execute_plan(make_plan(Act.ABORT_MARKER, hanging.name), end)
    assert (outcomes(row), hanging.end()) == (["stale"], 4)


def test_a_transaction_that_a_coordinator_owns_by_now_is_not_ended(hanging: Hanging) -> None:
    """Its own producer has begun a transaction there since: a marker would tear it."""
    plan = make_plan(Act.ABORT_MARKER, hanging.name)
    owner = RawProducer(hanging.broker.bootstrap, hanging.topic, identity=hanging.identity)
    owner.send(*hanging.where)
    row = execute_plan(plan)
    assert (outcomes(row), hanging.end()) == (["stale"], 3)
    assert "it is not hanging but open now" in result_texts(row)
    owner.commit()
    owner.abandon()


def test_a_marker_of_a_stopped_worker_is_reported_as_it_is_found(hanging: Hanging) -> None:
    row = execute_until_killed(make_plan(Act.ABORT_MARKER, hanging.name), kill_at("WriteTxnMarkers"))
    assert follow_up.settle_action(row, now_ms=loop.now_ms())
    row.refresh_from_db()
    assert (row.state, hanging.end()) == (Action.State.FAILED, 3)
    assert "no marker was written" in result_texts(row)


def test_refusals_of_a_leader_have_kafka_s_error_codes(hanging: Hanging) -> None:
    marker = Marker(facts.TopicPartition(*hanging.where), *hanging.identity, 0)
    absent = marker._replace(partition=facts.TopicPartition(hanging.topic, 9))
    outdated = marker._replace(producer_epoch=-2)
    leader = hanging.broker.node_id
    with closing(TransactionAdmin({"bootstrap.servers": hanging.broker.bootstrap})) as admin:
        assert admin.write_abort_marker(absent, leader=leader) == Ended(3, "UNKNOWN_TOPIC_OR_PARTITION")
        assert admin.write_abort_marker(outdated, leader=leader).word == "INVALID_PRODUCER_EPOCH"
        assert admin.write_abort_marker(marker, leader=77).code is None
    assert (hanging.is_open(), hanging.end()) == (True, 3)


def test_a_refusal_names_the_missing_grant(acl_broker: Broker, java: JavaGateway) -> None:
    for kind, operation in (
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE),
    ):
        set_acl(acl_broker, "acting", kind, "*", operation)
    with JavaAdmin(java, acl_broker.bootstrap) as admin, configured_cluster(signed_in(acl_broker, "acting")):
        hangs = Hanging(acl_broker, admin)
        write_stray_records(acl_broker, hangs.topic, hangs.identity, hangs.where)
        name = f"{hangs.topic}-id"
        producer = open_in(acl_broker.bootstrap, name)
        producer.send(*hangs.where)
        producer.flush()
        for act, subject, grant in (
            (Act.FENCE, name, f"--operation WRITE --transactional-id '{name}'"),
            (Act.ABORT_MARKER, hangs.name, "--operation ALTER --cluster"),
        ):
            wait_for(
                lambda act=act, subject=subject: make_plan(act, subject).doable_subjects, "ACLs have come"
            )
            refused = execute_plan(make_plan(act, subject))
            line = f"kafka-acls --add --allow-principal User:acting {grant}"
            assert (refused.state, outcomes(refused)) == (Action.State.FAILED, ["failed"])
            assert result_texts(refused).endswith(f": {line}")
            run_with_kafka_s_own_tool(KafkaTool(acl_broker, java), line)
            wait_for(lambda act=act, subject=subject: has_done(act, subject), f"{act} with its grant")
        assert not hangs.is_open()
        producer.abandon()


def has_done(act: Act, subject: str) -> bool:
    return execute_plan(make_plan(act, subject)).state == Action.State.DONE


def run_with_kafka_s_own_tool(tool: KafkaTool, line: str) -> None:
    tool.run("org.apache.kafka.tools.AclCommand", *shlex.split(line)[1:])
