"""The checks of the doctor, and a broker with ACLs for it."""

from collections.abc import Iterator, Mapping

import pytest

from collectors.doctor.examination import DoctorCheck, examine_cluster
from fenceline.kafka.scope import EVERYTHING, Scope
from sandbox.kafka import Broker, Sasl
from tests.brokers import PROPERTIES


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
    users = ("stepwise", "narrow", "whole", "denied", "blank", "acting")
    settings = {
        **PROPERTIES,
        "auto.create.topics.enable": "true",
        "transaction.partition.verification.enable": "false",
    }
    folder = tmp_path_factory.mktemp("kafka-acl")
    sasl = Sasl(dict.fromkeys(users, "rightful"))
    with Broker(folder, properties=settings, sasl=sasl, authorizer=True) as broker:
        yield broker
