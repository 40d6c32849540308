"""Proves that an authorizer denies nothing of ours where the rights are granted that the doctor lists."""

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from django.test import override_settings

from collectors.doctor.sight import CheckStatus, DoctorCheck, Patient
from dashboard.config import ClusterConfig, Config
from dashboard.models import PartitionRecord, Transaction
from dashboard.runtime import collector_store, leases, loop
from dashboard.tasks import polls, recoveries, tails
from dashboard.tasks.tails import Tailed
from fenceline.kafka.acls import Resource
from fenceline.kafka.scope import EVERYTHING, Scope
from sandbox.kafka import Broker, Sasl
from tests.acls import set_acl
from tests.brokers import PROPERTIES, create_topics
from tests.kafka.doctor_checks import run_doctor, signed_in
from tests.kafka.driven import read_slice, take_lease, take_round
from tests.kafka.producers import LONG, LibrdkafkaProducer
from tests.transaction_load import Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.django_db]

_KINDS = {
    Resource.CLUSTER: ResourceType.BROKER,
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_LEAST_ROUNDS = 5


def _tail(tailed: Tailed) -> loop.Rounds:
    """Return a tail's work as turns."""

    def rounds(lease: leases.Lease) -> loop.Turns:
        read_slice(lease, tailed)
        yield 0.0

    return rounds


#: Collectors by their names: what works in turns as the holder of a lease.
COLLECTORS = {
    "transaction_state": _tail(tails.tailed),
    "consumer_offsets": _tail(tails.tailed_offsets),
    "reconcile": polls.reconcile,
    "partitions": polls.poll_in_turns,
    "groups": polls.poll_groups,
    "recoveries": recoveries.follow_in_turns,
    "capabilities": polls.check_capabilities,
}


_LONGEST_MS = 3 * 3_600_000
_FOR_LONG = {"transaction.timeout.ms": str(_LONGEST_MS)}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACLs that logs whom it denies what."""
    denials = "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=info"
    strict = Broker(
        tmp_path_factory.mktemp("kafka-strict"),
        # One transaction is open for the whole run.
        properties={**PROPERTIES, "transaction.max.timeout.ms": str(_LONGEST_MS)},
        sasl=Sasl(dict.fromkeys(("fenceline", "narrow", "nobody"), "rightful")),
        authorizer=True,
    )
    strict.prepare()
    # Beside those of its class archive.
    strict.jvm_options = [*(strict.jvm_options or ()), denials]
    with strict as broker:
        create_topics(broker.bootstrap, "load", "hidden")
        yield broker


def denied(broker: Broker, user: str) -> list[str]:
    """Return the lines of the authorizer about a user."""
    return [
        line
        for line in broker.log_file.read_text().splitlines()
        if "Denied" in line and f"User:{user}" in line
    ]


def grant_all(broker: Broker, user: str, scope: Scope) -> None:
    """Grant what the doctor lists."""
    patient = Patient(signed_in(broker, user), False, 10, scope)
    for right in patient.rights_to_look:
        pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
        name = right.name[:-1] if right.is_prefix else right.name or "kafka-cluster"
        operation = AclOperation[right.operation]
        set_acl(broker, user, _KINDS[right.resource], name, operation, pattern=pattern)
    wait_for(lambda: not refused(patient), "every right is granted")


def refused(patient: Patient) -> list[DoctorCheck]:
    checks = run_doctor(patient.properties, scope=patient.scope)
    return [check for check in checks if check.status is CheckStatus.FAIL]


def test_the_authorizer_logs_denials_at_all(strict: Broker) -> None:
    run_doctor(signed_in(strict, "nobody"), timeout_s=5)
    wait_for(lambda: denied(strict, "nobody"), "the trials are denied")


NARROW = Scope(topics=("load",), groups=("load-*",), transactional_ids=("load-*",))


@pytest.mark.parametrize("seconds", [0, pytest.param(3_600, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("user", "scope"), [("fenceline", EVERYTHING), ("narrow", NARROW)])
def test_nothing_is_denied_with_what_the_doctor_lists(
    strict: Broker, user: str, scope: Scope, seconds: int
) -> None:
    cluster = ClusterConfig(f"strict-{user}-{seconds}", signed_in(strict, user), scope=scope)
    seconds = int(os.environ.get("FENCELINE_SECONDS", seconds))
    hidden = LibrdkafkaProducer(strict.bootstrap, f"hidden-{user}", {**LONG, **_FOR_LONG})
    hidden.init()
    hidden.begin()
    hidden.send("hidden", 0)
    hidden.flush()
    grant_all(strict, user, scope)
    before = len(denied(strict, user))
    collector_store.sync_clusters([cluster.name])
    until = time.monotonic() + seconds
    with (
        override_settings(FENCELINE=Config(clusters={cluster.name: cluster})),
        Load(strict.bootstrap, 20) as load,
    ):
        leased = {name: take_lease(cluster.name, name, ttl=timedelta(hours=2)) for name in COLLECTORS}
        rounds = count()
        while time.monotonic() < until or next(rounds) < _LEAST_ROUNDS or load.ended <= 20:
            for name, turns in COLLECTORS.items():
                take_round(turns(leased[name]))
    hidden.abort()
    assert load.ended > 20
    assert denied(strict, user)[before:] == []
    ids = set(
        Transaction.objects.filter(cluster__name=cluster.name).values_list("transactional_id", flat=True)
    )
    topics = set(PartitionRecord.objects.filter(cluster__name=cluster.name).values_list("topic", flat=True))
    assert {"load-1", "load-2"} <= ids
    assert (f"hidden-{user}" in ids, "hidden" in topics) == (scope is EVERYTHING,) * 2
    assert "load" in topics
