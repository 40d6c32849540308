"""Proves that the doctor asks each of three brokers, and names the one that is configured otherwise."""

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from collectors.doctor.examination import CheckStatus
from sandbox.cluster import KafkaCluster
from tests.kafka.doctor_checks import run_doctor
from tests.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]


def test_every_broker_is_reached_and_one_that_differs_is_named(kafka_three: KafkaCluster) -> None:
    name = "transaction.partition.verification.enable"
    admin = AdminClient({"bootstrap.servers": kafka_three.bootstrap})

    def set_at_two(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, "false", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def warned() -> list[str]:
        checks = run_doctor({"bootstrap.servers": kafka_three.bootstrap})
        reached = [
            each for each in checks if each.what.startswith("broker ") and each.status is CheckStatus.OK
        ]
        assert [each.what.split()[1] for each in reached] == ["1", "2", "3"]
        return [each.detail for each in checks if each.status is CheckStatus.WARN]

    assert warned() == []
    set_at_two(AlterConfigOpType.SET)
    try:
        (detail,) = wait_for(warned, "broker 2 has taken it up")
        assert f"{name} is off at broker 2," in detail
    finally:
        set_at_two(AlterConfigOpType.DELETE)
