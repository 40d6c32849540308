"""The scene `hanging`: a partition holds a transaction that its coordinator does not know.

Brokers before 3.6 accept such records, and later ones do if `transaction.partition.verification.enable` is
off (docs/design/kafka.md §0): a request that arrives after its transaction's end begins another transaction
that no client will ever end. The scene turns the setting off for one request.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there, and imported from below
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from sandbox import SandboxError, clients, wait_until
from sandbox.scenes import wire
from sandbox.scenes.scene_context import Report, Stage, record_value

TOPIC, PARTITION = "demo-hanging", 0
RECORDS = 3
VERIFICATION = "transaction.partition.verification.enable"
#: Maximum time for the controller's change to reach a broker.
_WITHIN_S = 30.0
#: INVALID_TXN_STATE and TRANSACTION_ABORTABLE: the coordinator told the broker that there is no transaction.
VERIFIED = (48, 120)
#: The broker does not lead or know the partition yet: the topic is new.
_NOT_YET = (3, 5, 6)


def play(stage: Stage, report: Report) -> None:
    """Write records of a transaction without adding the partition to it, each time with another id."""
    clients.ensure_topics(stage.bootstrap, {TOPIC: 1})
    admin = AdminClient(clients.client_settings(stage.bootstrap, "hanging"))
    leader, address = find_leader(admin, TOPIC, PARTITION)
    name = _unused_id(stage.bootstrap)
    with wire.CoordinatorConnection(stage.bootstrap, name) as coordinator:
        identity = coordinator.init_producer_id()
        report(
            f"1. {name} has producer id {identity.producer_id}, epoch {identity.epoch}, and no transaction"
        )
        with verification_off(admin, leader), wire.Connection(address) as broker:
            report(f"2. on broker {leader} {VERIFICATION} is off for a moment")
            offset = _produce(broker, name, identity)
            report(f"3. it took {RECORDS} records of a transaction at {TOPIC}-{PARTITION}, offset {offset}")
        report(
            "4. verification is on again; the coordinator, which has no such transaction, has the id in "
            + coordinator.transaction_state()
        )
    report(f"Look for: {TOPIC}-{PARTITION} hanging; its LSO is stuck, and its coordinator will not end it")
    report(
        "To end it: “Abort hanging transaction…” on its page, or kafka-transactions.sh --bootstrap-server "
        f"{address} abort --topic {TOPIC} --partition {PARTITION} --start-offset {offset}"
    )


@contextmanager
def verification_off(admin: AdminClient, node_id: int) -> Iterator[None]:
    """Turn a broker's verification of transactions off by dynamic configuration, then back to its default.

    Raises SandboxError if it cannot be turned on again, with the command for that.
    """
    try:
        _set(admin, node_id, AlterConfigOpType.SET)
        wait_until(
            lambda: _is(admin, node_id) == "false", f"broker {node_id} turns verification off", _WITHIN_S
        )
        yield
    finally:
        try:
            _set(admin, node_id, AlterConfigOpType.DELETE)
            wait_until(
                lambda: _is(admin, node_id) == "true", f"broker {node_id} turns verification on", _WITHIN_S
            )
        except (KafkaException, SandboxError) as error:
            raise SandboxError(
                f"{VERIFICATION} may still be off ({error}); turn it on: kafka-configs.sh --alter "
                f"--entity-type brokers --entity-name {node_id} --delete-config {VERIFICATION}"
            ) from None


def _unused_id(bootstrap: str) -> str:
    """Return an id that no coordinator knows: a known id would continue its open transaction."""

    def is_unused(name: str) -> bool:
        with wire.CoordinatorConnection(bootstrap, name) as coordinator:
            return not coordinator.knows_id()

    return next(filter(is_unused, (f"demo-stray-{number}" for number in itertools.count(1))))


def _set(admin: AdminClient, node_id: int, how: AlterConfigOpType) -> None:
    change = ConfigEntry(VERIFICATION, "false", incremental_operation=how)
    broker = ConfigResource(ResourceType.BROKER, str(node_id), incremental_configs=[change])
    admin.incremental_alter_configs([broker])[broker].result(_WITHIN_S)


def _is(admin: AdminClient, node_id: int) -> str:
    """Return a broker's own setting of the verification."""
    broker = ConfigResource(ResourceType.BROKER, str(node_id))
    return str(admin.describe_configs([broker])[broker].result(_WITHIN_S)[VERIFICATION].value)


def _produce(broker: wire.Connection, name: str, identity: wire.Identity) -> int:
    """Write the records once the broker no longer verifies; return the first offset."""
    values = [record_value(f"hanging, {number}") for number in range(1, RECORDS + 1)]

    def taken() -> list[int]:
        try:
            return [wire.produce_records(broker, name, identity, (TOPIC, PARTITION), values)]
        except wire.CoordinatorRefused as refused:
            if refused.code not in (*VERIFIED, *_NOT_YET):
                raise
        return []

    (offset,) = wait_until(taken, "the broker takes the records", _WITHIN_S)
    return offset


def find_leader(admin: AdminClient, topic: str, number: int) -> tuple[int, str]:
    """Return the node id and `host:port` of a partition's leader, once it has one."""

    def found() -> tuple[int, str] | None:
        metadata = admin.list_topics(topic, timeout=10)
        partition = metadata.topics[topic].partitions.get(number)
        broker = metadata.brokers.get(partition.leader) if partition else None
        return (broker.id, f"{broker.host}:{broker.port}") if broker else None

    return wait_until(found, f"{topic}-{number} has a leader", _WITHIN_S)
