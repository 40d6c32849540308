"""The scene `coordinator-moves`: a broker hands its part of `__transaction_state` to another one.

A rolling restart does the same: the new leader reads the log of each partition before it answers. No process
is paused and no record is lost: producers look their coordinator up again.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from fenceline.kafka.coordinator import partition_for
from sandbox import SandboxError, wait_until
from sandbox.scenes import wire
from sandbox.scenes.scene_context import Report, Stage, make_producer, open_transaction, require_brokers

STATE_TOPIC = "__transaction_state"
IDS = tuple(f"demo-coordinator-{number}" for number in range(8))
BROKERS = 3
_WITHIN_S = 60.0
_PREFERRED = 0

#: The replicas of each partition, its preferred leader first, and its leader.
Replicas = Mapping[int, tuple[Sequence[int], int]]


def play(stage: Stage, report: Report) -> None:
    """Commit with several ids, hand the first id's coordinator partitions over, and commit again."""
    require_brokers(stage, "coordinator-moves", BROKERS)
    for name in IDS:
        _commit(stage.bootstrap, name)
    with wire.CoordinatorConnection(stage.bootstrap, IDS[0]) as coordinator:
        old = coordinator.node_id
    report(f"1. {len(IDS)} ids have committed; broker {old} coordinates {IDS[0]}")
    with closing(KafkaAdminClient(bootstrap_servers=stage.bootstrap)) as admin:
        new, partitions = _hand_over(admin, old)
        report(f"2. broker {old} hands {len(partitions)} partitions of {STATE_TOPIC} to broker {new} …")
        wait_until(lambda: _are_led(admin, partitions, new), f"broker {new} leads them", _WITHIN_S)
        in_all = len(_replicas(admin))
    started = time.monotonic()
    moved = [name for name in IDS if partition_for(name.encode(), in_all) in partitions]
    for name in moved:
        _commit(stage.bootstrap, name)
    report(
        f"3. its {len(moved)} ids commit with their new coordinator after {time.monotonic() - started:.1f} s"
    )
    report(f"Look for: the coordinators' page and an event, from broker {old} to {new}")


def _commit(bootstrap: str, name: str) -> None:
    made = make_producer(bootstrap, name)
    open_transaction(made, "orders", 0, "coordinator-moves")
    made.commit_transaction(30)


def _hand_over(admin: KafkaAdminClient, old: int) -> tuple[int, Sequence[int]]:
    """Make another replica the leader of all partitions of a broker; return replica and partitions."""
    led = {number: replicas for number, (replicas, leader) in _replicas(admin).items() if leader == old}
    new = next(broker for broker in next(iter(led.values())) if broker != old)
    others = {
        number: [new, *(broker for broker in all_of if broker != new)] for number, all_of in led.items()
    }
    wanted = {KafkaTopicPartition(STATE_TOPIC, number): order for number, order in others.items()}
    refused = [error for error in admin.alter_partition_reassignments(wanted).values() if error is not None]
    if refused:
        raise SandboxError(f"the brokers did not reorder the replicas of {STATE_TOPIC}: {refused[0]}")
    admin.elect_leaders(_PREFERRED, {STATE_TOPIC: sorted(others)}, raise_errors=False)
    return new, sorted(others)


def _are_led(admin: KafkaAdminClient, partitions: Sequence[int], leader: int) -> bool:
    now = _replicas(admin)
    return all(now[number][1] == leader for number in partitions)


def _replicas(admin: KafkaAdminClient) -> Replicas:
    (topic,) = admin.describe_topics([STATE_TOPIC])
    return {
        partition["partition_index"]: (partition["replica_nodes"], partition["leader_id"])
        for partition in topic["partitions"]
    }
