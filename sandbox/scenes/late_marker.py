"""The scene `late-marker`: the commit is decided, and a partition's leader is unreachable.

The coordinator writes PrepareCommit, then a marker into each partition, then CompleteCommit. A partition
whose only replica is unreachable gets no marker, so the transaction stays in PrepareCommit and the
partition's last stable offset does not move. The broker's process is paused, not ended: its supervisor would
restart it.
"""

import time
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sandbox import SandboxError, clients, topics, wait_until
from sandbox.scenes import wire
from sandbox.scenes.paused import pause_process
from sandbox.scenes.scene_context import Report, Stage, make_producer, require_brokers, write_record

TOPIC = TRANSACTIONAL_ID = "demo-late-marker"
BROKERS = 3
#: Seconds that the broker stays unreachable once the cluster has noticed.
AWAY_S = 60.0
#: The cluster notices a broker's absence after 9 s; a returning broker catches up within about a minute.
_WITHIN_S = 180.0


def play(stage: Stage, report: Report, away_s: float = AWAY_S) -> None:
    """Commit a transaction over partitions of three brokers; one broker is unreachable for `away_s`."""
    require_brokers(stage, "late-marker", BROKERS)
    nodes = sorted(stage.pids)[:BROKERS]
    _make_topic(stage.bootstrap, nodes)
    made = make_producer(stage.bootstrap, TRANSACTIONAL_ID)
    with wire.CoordinatorConnection(stage.bootstrap, TRANSACTIONAL_ID) as coordinator:
        victim = next(node for node in nodes if node != coordinator.node_id)
        held = _open_everywhere(made, len(nodes))[nodes.index(victim)]
        where = f"{TOPIC}-{nodes.index(victim)}"
        report(
            f"1. {TRANSACTIONAL_ID} has a transaction open on a partition of each of the {len(nodes)} brokers"
        )
        report(f"2. broker {victim} is paused; it alone has {where} (offset {held}) …")
        with pause_process(stage.pids[victim]):
            _decide(made, coordinator, victim, report)
            _stay(coordinator, away_s, report)
        report(f"5. broker {victim} continues …")
        waited = _wait_for(coordinator, "CompleteCommit")
    report(f"6. after {waited:.1f} s the marker is written, and {TRANSACTIONAL_ID} is in CompleteCommit")
    report(
        f"Look for: {TRANSACTIONAL_ID} stuck in PrepareCommit while broker {victim} was away; {where} blocked"
    )


def _make_topic(bootstrap: str, nodes: list[int]) -> None:
    """Make a topic with one partition on each node, without further replicas."""
    assigned = [[node] for node in nodes]
    alone = {"min.insync.replicas": "1"}
    topic = NewTopic(TOPIC, len(nodes), replica_assignment=assigned, config=alone)
    topics.create_topics(bootstrap, [topic])


def _open_everywhere(made: Producer, partitions: int) -> list[int]:
    """Begin a transaction with a record in each partition; return the records' offsets."""
    made.begin_transaction()
    return [write_record(made, TOPIC, number, "late-marker") for number in range(partitions)]


def _decide(made: Producer, coordinator: wire.CoordinatorConnection, victim: int, report: Report) -> None:
    """Commit once the cluster has noticed the victim's absence: earlier, its log could not be written."""
    started = time.monotonic()
    # Ask only the coordinator's broker: the victim would not answer.
    admin = AdminClient(clients.client_settings(coordinator.address, "late-marker"))
    wait_until(partial(_is_missed, admin, victim), f"broker {victim} is missed", _WITHIN_S)
    report(f"3. after {time.monotonic() - started:.1f} s its partition has no leader")
    made.commit_transaction(60)
    _wait_for(coordinator, "PrepareCommit")
    report("4. the commit is decided and acknowledged, but the transaction stays in PrepareCommit …")


def _is_missed(admin: AdminClient, victim: int) -> bool:
    metadata = admin.list_topics(TOPIC, timeout=10)
    leaders = {partition.leader for partition in metadata.topics[TOPIC].partitions.values()}
    return victim not in leaders


def _stay(coordinator: wire.CoordinatorConnection, away_s: float, report: Report) -> None:
    """Wait. Raises SandboxError if the transaction completes in this time."""
    report(f"   for {away_s:.0f} s")
    until = time.monotonic() + away_s
    while (left := until - time.monotonic()) > 0:
        if (state := coordinator.transaction_state()) != "PrepareCommit":
            raise SandboxError(f"{TRANSACTIONAL_ID} is in {state} though a broker is away")
        time.sleep(min(1.0, left))


def _wait_for(coordinator: wire.CoordinatorConnection, state: str) -> float:
    """Wait until the coordinator reports the id in a state; return the elapsed seconds."""
    started = time.monotonic()
    wait_until(
        lambda: coordinator.transaction_state() == state, f"{TRANSACTIONAL_ID} is in {state}", _WITHIN_S
    )
    return time.monotonic() - started
