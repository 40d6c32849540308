"""Proves that the doctor tries every right on a real broker and names exactly the kafka-acls line that grants
a missing one, and that it writes nothing; and what the collector of capabilities finds by the same trials,
and keeps while no broker answers."""

import shlex

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from py4j.java_gateway import JavaGateway

from collectors.doctor.examination import CheckStatus, DoctorCheck
from collectors.doctor.sight import Patient, probe_capabilities
from dashboard.runtime import collector_store
from dashboard.system import capabilities
from dashboard.tasks.polls import look_over_cluster
from fenceline.kafka.acls import TO_LOOK
from fenceline.kafka.capabilities import CapabilityState
from sandbox.kafka import Broker
from sandbox.ports import free_port
from tests.acls import set_acl
from tests.brokers import create_topics
from tests.java.tools import KafkaTool
from tests.kafka.doctor_checks import grant_describe, run_doctor, signed_in
from tests.kafka.driven import only_cluster, take_lease
from tests.kafka.transactional_ids import initialise_ids
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]
#: What grants each right, after `kafka-acls --add --allow-principal User:…`, in the order of the trials.
LINES = {
    "DESCRIBE on topic __transaction_state": "--operation DESCRIBE --topic __transaction_state",
    "READ on topic __transaction_state": "--operation READ --topic __transaction_state",
    "DESCRIBE on topic __consumer_offsets": "--operation DESCRIBE --topic __consumer_offsets",
    "READ on topic __consumer_offsets": "--operation READ --topic __consumer_offsets",
    "DESCRIBE on transactional-id *": "--operation DESCRIBE --transactional-id '*'",
    "DESCRIBE on group *": "--operation DESCRIBE --group '*'",
    "DESCRIBE on topic *": "--operation DESCRIBE --topic '*'",
    "READ on topic *": "--operation READ --topic '*'",
    "DESCRIBE on cluster": "--operation DESCRIBE --cluster",
    "DESCRIBE_CONFIGS on cluster": "--operation DescribeConfigs --cluster",
}
#: Without these a part of a page goes dark, and no whole one.
SOFT = ("DESCRIBE on cluster", "DESCRIBE_CONFIGS on cluster")


def as_user(broker: Broker, user: str, *, sees_all: bool = False) -> dict[str, DoctorCheck]:
    """Return the checks of the cluster for this user, by what was checked."""
    return {check.what: check for check in run_doctor(signed_in(broker, user), sees_all=sees_all)}


def until(broker: Broker, user: str, what: str, status: CheckStatus) -> dict[str, DoctorCheck]:
    """Wait until a check ends like this, as ACLs take a moment to reach a broker, and return all of them."""
    return wait_for(
        lambda: now if (now := as_user(broker, user))[what].status is status else None, f"{what} is {status}"
    )


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10).topics)


def run_as_printed(broker: Broker, java: JavaGateway, line: str) -> None:
    """Run a line of the doctor with Kafka's own tool, where a super user listens."""
    program, *arguments = shlex.split(line)
    assert program == "kafka-acls"
    assert arguments[-2:] == ["--bootstrap-server", broker.sasl_bootstrap]
    KafkaTool(broker, java).run("org.apache.kafka.tools.AclCommand", *arguments[:-2])


def grant_all(broker: Broker, user: str) -> None:
    for kind, name, operation in (
        (ResourceType.TOPIC, "*", AclOperation.READ),
        (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE),
        (ResourceType.GROUP, "*", AclOperation.DESCRIBE),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
    ):
        set_acl(broker, user, kind, name, operation)
    wait_for(
        lambda: all(as_user(broker, user)[what].status in ("ok", "warn") for what in LINES),
        "every right is there",
    )


def test_each_missing_right_is_named_with_the_line_that_grants_it_and_nothing_else_is_granted(
    acl_broker: Broker,
    java: JavaGateway,
) -> None:
    """One right after the other, each by its own printed line; the next one is still refused by then."""
    assert [str(right) for right in TO_LOOK] == list(LINES)
    granted: list[str] = []
    there = topics(acl_broker)
    for what, arguments in LINES.items():
        before = as_user(acl_broker, "stepwise")
        missing = before[what]
        assert missing.status == (CheckStatus.WARN if what in SOFT else CheckStatus.FAIL), missing
        line = f"kafka-acls --add --allow-principal User:stepwise {arguments}"
        assert missing.remedies == (f"{line} --bootstrap-server {acl_broker.sasl_bootstrap}",)
        assert [each for each in LINES if not before[each].detail.startswith("missing")] == granted
        run_as_printed(acl_broker, java, missing.remedies[0])
        granted.append(what)
        wait_for(
            lambda: as_user(acl_broker, "stepwise")[granted[-1]].detail.startswith("granted"),
            f"{what} is there",
        )
    after = as_user(acl_broker, "stepwise")
    assert {after[what].status for what in LINES} == {CheckStatus.OK}
    assert topics(acl_broker) == there


def test_rights_for_actions_are_reported_by_the_broker_and_never_tried(
    acl_broker: Broker, java: JavaGateway
) -> None:
    markers, ending = "act: ALTER on cluster (or CLUSTER_ACTION)", "act: WRITE on transactional-id *"
    blank = as_user(acl_broker, "blank")
    for what in markers, ending:
        assert blank[what].status == CheckStatus.SKIP
        assert "a trial would act" in blank[what].detail
    grant_all(acl_broker, "whole")
    whole = as_user(acl_broker, "whole")
    assert whole[markers].detail.startswith("missing, by the broker's answer")
    for line in (*whole[markers].remedies, *whole[ending].remedies):
        run_as_printed(acl_broker, java, line)
    wait_for(
        lambda: as_user(acl_broker, "whole")[markers].status is CheckStatus.OK, "the broker tells of ALTER"
    )
    assert as_user(acl_broker, "whole")[ending].status is CheckStatus.SKIP


def test_narrow_grants_are_a_warning_with_what_they_allow(acl_broker: Broker) -> None:
    create_topics(acl_broker.bootstrap, "narrow-a", "narrow-b", "wide")
    initialise_ids(acl_broker.bootstrap, ["narrow-id", "wide-id"])
    for name, operation in (("narrow-", AclOperation.DESCRIBE), ("narrow-a", AclOperation.READ)):
        prefixed = ResourcePatternType.PREFIXED
        set_acl(acl_broker, "narrow", ResourceType.TOPIC, name, operation, pattern=prefixed)
    set_acl(acl_broker, "narrow", ResourceType.TRANSACTIONAL_ID, "narrow-id", AclOperation.DESCRIBE)
    found = wait_for(
        lambda: (
            (now := as_user(acl_broker, "narrow"))["DESCRIBE on transactional-id *"].status == "warn" and now
        ),
        "the grants are there",
    )
    assert "1 transactional id can be seen" in found["DESCRIBE on transactional-id *"].detail
    seen = found["DESCRIBE on topic *"]
    assert (seen.status, "2 topics can be seen" in seen.detail) == (CheckStatus.WARN, True)
    read = found["READ on topic *"]
    assert read.status is CheckStatus.WARN
    assert "Granted on 1 topic by name, not of narrow-b" in read.detail
    assert found["DESCRIBE on group *"].status is CheckStatus.FAIL
    vouched = as_user(acl_broker, "narrow", sees_all=True)["DESCRIBE on transactional-id *"]
    assert "make sure" in vouched.detail


def test_a_denied_right_is_named_although_everything_is_granted(
    acl_broker: Broker, java: JavaGateway
) -> None:
    create_topics(acl_broker.bootstrap, "orders", "salaries")
    grant_all(acl_broker, "denied")
    granted = as_user(acl_broker, "denied")
    assert granted["DESCRIBE on transactional-id *"].detail == "granted, and no ACL hides an id"
    deny = AclPermissionType.DENY
    set_acl(acl_broker, "denied", ResourceType.TOPIC, "salaries", AclOperation.READ, deny)
    set_acl(acl_broker, "denied", ResourceType.TRANSACTIONAL_ID, "secret-", AclOperation.ALL, deny)
    # Another principal's is none of our business.
    set_acl(acl_broker, "blank", ResourceType.TRANSACTIONAL_ID, "other", AclOperation.DESCRIBE, deny)
    found = until(acl_broker, "denied", "READ on topic *", CheckStatus.FAIL)
    assert "salaries" in found["READ on topic *"].detail
    assert "orders" not in found["READ on topic *"].detail
    hidden = found["DESCRIBE on transactional-id *"]
    assert hidden.status is CheckStatus.WARN
    assert "ACLs hide secret-:" in hidden.detail
    for line in (*found["READ on topic *"].remedies, *hidden.remedies):
        run_as_printed(acl_broker, java, line)


def test_visibility_of_all_ids_may_be_vouched_for_without_reading_acls(acl_broker: Broker) -> None:
    set_acl(acl_broker, "blank", ResourceType.TRANSACTIONAL_ID, "*", AclOperation.DESCRIBE)
    what = "DESCRIBE on transactional-id *"
    doubtful = until(acl_broker, "blank", what, CheckStatus.WARN)[what]
    assert "cannot be proved" in doubtful.detail
    assert "--operation DESCRIBE --cluster" in doubtful.remedies[0]
    assert as_user(acl_broker, "blank", sees_all=True)[what].status is CheckStatus.OK


def test_a_broker_that_verifies_nothing_is_a_warning(acl_broker: Broker) -> None:
    (check,) = [
        each for each in run_doctor({"bootstrap.servers": acl_broker.bootstrap}) if each.status == "warn"
    ]
    assert "transaction.partition.verification.enable is off at broker 1" in check.detail
    assert check.remedies[0].startswith("kafka-configs --alter")


def test_a_healthy_cluster_has_nothing_to_remedy(kafka: Broker) -> None:
    checks = run_doctor({"bootstrap.servers": kafka.bootstrap})
    assert [each for each in checks if each.status in (CheckStatus.WARN, CheckStatus.FAIL)] == []
    by_what = {each.what: each.detail for each in checks}
    release = (
        "Kafka 3.9, transaction.version 0" if kafka.version == "3.9.1" else "Kafka 4.2, transaction.version 2"
    )
    assert release in by_what["versions"]
    assert "the active controller's is" in by_what["clock"]
    details = [each.detail for each in checks if each.what == "settings"]
    assert details == [
        "transaction.max.timeout.ms is 15 min",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms is 500 ms",
    ]


def states(properties: dict[str, str]) -> dict[str, CapabilityState]:
    return {each.name: each.state for each in probe_capabilities(Patient(properties, False, 10))}


def test_without_acls_all_but_what_nobody_has_used_works(kafka_42: Broker) -> None:
    initialise_ids(kafka_42.bootstrap, ["seen-by-capabilities"])
    found = states({"bootstrap.servers": kafka_42.bootstrap})
    assert found.pop("commit_times") in (CapabilityState.WORKS, CapabilityState.UNKNOWN)
    assert set(found.values()) == {CapabilityState.WORKS}


def test_each_refused_right_limits_what_needs_it(acl_broker: Broker) -> None:
    initialise_ids(acl_broker.bootstrap, ["seen"])
    grant_describe(acl_broker, "capable", "seen")
    properties = signed_in(acl_broker, "capable")
    found = {each.name: each for each in probe_capabilities(Patient(properties, False, 10))}
    assert found["transactions"].state is CapabilityState.LIMITED
    assert found["log_history"].state is CapabilityState.MISSING
    assert "--allow-principal User:capable --operation READ --topic __transaction_state" in str(
        found["log_history"]
    )
    assert found["fence"].state is CapabilityState.UNKNOWN


def test_a_look_is_kept_while_no_broker_answers(kafka_42: Broker) -> None:
    collector_store.sync_clusters(["capable"])
    lease = take_lease("capable", capabilities.NAME)
    for bootstrap in kafka_42.bootstrap, f"127.0.0.1:{free_port()}":
        with only_cluster("capable", {"bootstrap.servers": bootstrap}):
            look_over_cluster(lease)
    found = capabilities.cluster_capabilities("capable")
    assert found.trouble
    assert len(found.checks) > 10
    assert not found.is_whole
