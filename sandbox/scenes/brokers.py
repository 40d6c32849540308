"""Scenes of a cluster of three brokers.

`coordinator-moves`: a broker hands its part of `__transaction_state` to another one. A rolling restart does
the same: the new leader reads the log of each partition before it answers. No process is paused and no
record is lost: producers look their coordinator up again.

`late-marker`: the commit is decided, and a partition's leader is unreachable. The coordinator writes
PrepareCommit, then a marker into each partition, then CompleteCommit. A partition whose only replica is
unreachable gets no marker, so the transaction stays in PrepareCommit and the partition's last stable offset
does not move. The broker's process is paused, not ended: its supervisor would restart it.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from fenceline.kafka.coordinator import partition_for
from sandbox import SandboxError, clients, wait_until
from sandbox.scenes import wire
from sandbox.scenes.paused import pause_process
from sandbox.scenes.scene_context import (
    Report,
    Stage,
    make_producer,
    open_transaction,
    require_brokers,
    write_record,
)

STATE_TOPIC = "__transaction_state"
MOVED_IDS = tuple(f"demo-coordinator-{number}" for number in range(8))
BROKERS = 3
#: Seconds until the new leader must lead.
_LED_S = 60.0
_PREFERRED = 0
LATE_TOPIC = LATE_ID = "demo-late-marker"
#: Seconds that the broker stays unreachable once the cluster has noticed.
AWAY_S = 60.0
#: The cluster notices a broker's absence after 9 s; a returning broker catches up within about a minute.
_NOTICED_S = 180.0

#: The replicas of each partition, its preferred leader first, and its leader.
Replicas = Mapping[int, tuple[Sequence[int], int]]


def coordinator_moves(stage: Stage, report: Report) -> None:
    """Commit with several ids, hand the first id's coordinator partitions over, and commit again."""
    require_brokers(stage, "coordinator-moves", BROKERS)
    for name in MOVED_IDS:
        _commit(stage.bootstrap, name)
    with wire.CoordinatorConnection(stage.bootstrap, MOVED_IDS[0]) as coordinator:
        old = coordinator.node_id
    report(f"1. {len(MOVED_IDS)} ids have committed; broker {old} coordinates {MOVED_IDS[0]}")
    with closing(KafkaAdminClient(bootstrap_servers=stage.bootstrap)) as admin:
        new, partitions = _hand_over(admin, old)
        report(f"2. broker {old} hands {len(partitions)} partitions of {STATE_TOPIC} to broker {new} …")
        wait_until(lambda: _are_led(admin, partitions, new), f"broker {new} leads them", _LED_S)
        in_all = len(_replicas(admin))
    started = time.monotonic()
    moved = [name for name in MOVED_IDS if partition_for(name.encode(), in_all) in partitions]
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


def late_marker(stage: Stage, report: Report, away_s: float = AWAY_S) -> None:
    """Commit a transaction over partitions of three brokers; one broker is unreachable for `away_s`."""
    require_brokers(stage, "late-marker", BROKERS)
    nodes = sorted(stage.pids)[:BROKERS]
    _make_topic(stage.bootstrap, nodes)
    made = make_producer(stage.bootstrap, LATE_ID)
    with wire.CoordinatorConnection(stage.bootstrap, LATE_ID) as coordinator:
        victim = next(node for node in nodes if node != coordinator.node_id)
        held = _open_everywhere(made, len(nodes))[nodes.index(victim)]
        where = f"{LATE_TOPIC}-{nodes.index(victim)}"
        report(f"1. {LATE_ID} has a transaction open on a partition of each of the {len(nodes)} brokers")
        report(f"2. broker {victim} is paused; it alone has {where} (offset {held}) …")
        with pause_process(stage.pids[victim]):
            _decide(made, coordinator, victim, report)
            _stay(coordinator, away_s, report)
        report(f"5. broker {victim} continues …")
        waited = _wait_for_state(coordinator, "CompleteCommit")
    report(f"6. after {waited:.1f} s the marker is written, and {LATE_ID} is in CompleteCommit")
    report(f"Look for: {LATE_ID} stuck in PrepareCommit while broker {victim} was away; {where} blocked")


def _make_topic(bootstrap: str, nodes: list[int]) -> None:
    """Make a topic with one partition on each node, without further replicas."""
    assigned = [[node] for node in nodes]
    alone = {"min.insync.replicas": "1"}
    topic = NewTopic(LATE_TOPIC, len(nodes), replica_assignment=assigned, config=alone)
    clients.create_topics(bootstrap, [topic])


def _open_everywhere(made: Producer, partitions: int) -> list[int]:
    """Begin a transaction with a record in each partition; return the records' offsets."""
    made.begin_transaction()
    return [write_record(made, LATE_TOPIC, number, "late-marker") for number in range(partitions)]


def _decide(made: Producer, coordinator: wire.CoordinatorConnection, victim: int, report: Report) -> None:
    """Commit once the cluster has noticed the victim's absence: earlier, its log could not be written."""
    started = time.monotonic()
    # Ask only the coordinator's broker: the victim would not answer.
    admin = AdminClient(clients.client_settings(coordinator.address, "late-marker"))
    wait_until(partial(_is_missed, admin, victim), f"broker {victim} is missed", _NOTICED_S)
    report(f"3. after {time.monotonic() - started:.1f} s its partition has no leader")
    made.commit_transaction(60)
    _wait_for_state(coordinator, "PrepareCommit")
    report("4. the commit is decided and acknowledged, but the transaction stays in PrepareCommit …")


def _is_missed(admin: AdminClient, victim: int) -> bool:
    metadata = admin.list_topics(LATE_TOPIC, timeout=10)
    leaders = {partition.leader for partition in metadata.topics[LATE_TOPIC].partitions.values()}
    return victim not in leaders


def _stay(coordinator: wire.CoordinatorConnection, away_s: float, report: Report) -> None:
    """Wait. Raises SandboxError if the transaction completes in this time."""
    report(f"   for {away_s:.0f} s")
    until = time.monotonic() + away_s
    while (left := until - time.monotonic()) > 0:
        if (state := coordinator.transaction_state()) != "PrepareCommit":
            raise SandboxError(f"{LATE_ID} is in {state} though a broker is away")
        time.sleep(min(1.0, left))


def _wait_for_state(coordinator: wire.CoordinatorConnection, state: str) -> float:
    """Wait until the coordinator reports the id in a state; return the elapsed seconds."""
    started = time.monotonic()
    wait_until(lambda: coordinator.transaction_state() == state, f"{LATE_ID} is in {state}", _NOTICED_S)
    return time.monotonic() - started
