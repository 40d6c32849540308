"""Proves what the collector of capabilities finds on real brokers, and keeps while none answers."""

import pytest

from collectors.doctor.checks import Patient
from collectors.doctor.sight import probe_capabilities
from dashboard.runtime import collector_store
from dashboard.system import capabilities
from dashboard.tasks.polls import look_over_cluster
from fenceline.kafka.capabilities import CapabilityState
from sandbox.kafka import Broker
from sandbox.ports import free_port
from tests.kafka.doctor_checks import grant_describe, signed_in
from tests.kafka.driven import only_cluster, take_lease
from tests.kafka.transactional_ids import initialise_ids

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]


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
