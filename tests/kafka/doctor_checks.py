"""The checks of the doctor, and a broker with ACLs for it."""

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from collectors.doctor.examination import DoctorCheck, examine_cluster
from fenceline.kafka.scope import EVERYTHING, Scope
from sandbox.kafka import Broker, Sasl
from tests.acls import set_acl
from tests.brokers import PROPERTIES

#: Each for a test, or a file, of its own: rights that were granted stay.
USERS = (
    "acting", "asker", "blank", "capable", "deleter", "denied", "mover", "narrow", "nobody", "planner",
    "reader", "reconciler", "refused", "stepwise", "viewer", "whole",
)  # fmt: skip


def run_doctor(
    properties: Mapping[str, str],
    *,
    sees_all: bool = False,
    timeout_s: float = 10,
    scope: Scope = EVERYTHING,
) -> list[DoctorCheck]:
    """Return every check, with time enough for a busy machine."""
    return list(
        examine_cluster(properties, sees_all_ids=sees_all, timeout_s=timeout_s, patience_s=300, scope=scope)
    )


@pytest.fixture(scope="session")
def acl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACLs, which creates topics that are requested, and verifies no transactions."""
    settings = {
        **PROPERTIES,
        "auto.create.topics.enable": "true",
        "transaction.partition.verification.enable": "false",
    }
    folder = tmp_path_factory.mktemp("kafka-acl")
    sasl = Sasl(dict.fromkeys(USERS, "rightful"))
    with Broker(folder, properties=settings, sasl=sasl, authorizer=True) as broker:
        yield broker


def signed_in(broker: Broker, user: str, password: str = "rightful") -> dict[str, str]:
    """Return the properties by which a user signs in."""
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def grant_describe(broker: Broker, user: str, transactional_id: str) -> None:
    """Let a user see an id."""
    set_acl(broker, user, ResourceType.TRANSACTIONAL_ID, transactional_id, AclOperation.DESCRIBE)
