"""Proves that an authorizer denies nothing of ours where the rights are granted that the doctor lists."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from django.test import override_settings

from collectors.doctor.examination import CheckStatus
from dashboard.config import ClusterConfig, Config
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import capabilities, groups, offsets, partitions, reconciling, recoveries, tails
from fenceline.kafka.acls import TO_LOOK, Resource
from sandbox.kafka import Broker, Sasl
from tests.acls import set_acl
from tests.brokers import PROPERTIES, create_topics
from tests.kafka.doctor_checks import run_doctor
from tests.kafka.test_transaction_admin import signed_in
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

_KINDS = {
    Resource.CLUSTER: ResourceType.BROKER,
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
#: Collectors by their names: what works as the holder of a lease until an instant.
COLLECTORS = {
    "transaction_state": tails.read_until,
    "consumer_offsets": offsets.tailed.read_until,
    "reconcile": reconciling.reconcile_until,
    "partitions": partitions.poll_until,
    "groups": groups.poll_until,
    "recoveries": recoveries.follow_until,
    "capabilities": capabilities.look_until,
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACLs that logs whom it denies what."""
    denials = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=info"
    with Broker(
        tmp_path_factory.mktemp("kafka-strict"),
        properties=PROPERTIES,
        sasl=Sasl({"fenceline": "rightful", "nobody": "rightful"}),
        authorizer=True,
        jvm_options=[denials],
    ) as broker:
        yield broker


def denied(broker: Broker, user: str) -> list[str]:
    """Return the lines of the authorizer about a user."""
    return [
        line
        for line in broker.log_file.read_text().splitlines()
        if "Denied" in line and f"User:{user}" in line
    ]


def grant_all(broker: Broker, user: str) -> None:
    """Grant what the doctor lists."""
    for right in TO_LOOK:
        name = right.name or "kafka-cluster"
        set_acl(broker, user, _KINDS[right.resource], name, AclOperation[right.operation])
    wait_for(
        lambda: all(check.status is not CheckStatus.FAIL for check in run_doctor(signed_in(broker, user))),
        "every right is granted",
    )


def test_the_authorizer_logs_denials_at_all(strict: Broker) -> None:
    run_doctor(signed_in(strict, "nobody"), timeout_s=5)
    wait_for(lambda: denied(strict, "nobody"), "the trials are denied")


@pytest.mark.parametrize("seconds", [12, pytest.param(3_600, marks=pytest.mark.soak)])
def test_nothing_is_denied_with_what_the_doctor_lists(strict: Broker, seconds: int) -> None:
    cluster = ClusterConfig(f"strict-{seconds}", signed_in(strict, "fenceline"))
    seconds = int(os.environ.get("FENCELINE_SECONDS", seconds))
    create_topics(strict.bootstrap, "load")
    grant_all(strict, "fenceline")
    before = len(denied(strict, "fenceline"))
    collector_store.sync_clusters([cluster.name])
    until = time.monotonic() + seconds
    with (
        override_settings(FENCELINE=Config(clusters={cluster.name: cluster})),
        Load(strict.bootstrap, 20) as load,
    ):
        leased = {name: lease(cluster.name, name) for name in COLLECTORS}
        while time.monotonic() < until:
            for name, work in COLLECTORS.items():
                work(leased[name], time.monotonic() + 0.3)
    assert load.ended > 20
    assert denied(strict, "fenceline")[before:] == []


def lease(cluster: str, name: str) -> leases.Lease:
    acquired = leases.acquire(cluster, name, holder="test", now_ms=loop.now_ms(), ttl=timedelta(hours=2))
    assert acquired is not None
    return acquired
