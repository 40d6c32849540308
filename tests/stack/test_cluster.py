"""Three brokers are one cluster: it outlives any one of them, and its folder gives it again with its data."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sandbox import SandboxError, clients
from sandbox.cluster import SIZE, KafkaCluster, require_size
from sandbox.kafka import Broker
from tests.kafka.three.test_cluster import partitions_of


def write(bootstrap: str, partition: int) -> int:
    """Write a record that all replicas in sync must have; return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    producer.produce(
        "orders", b"x", partition=partition, on_delivery=lambda _, message: offsets.append(message.offset())
    )
    assert producer.flush(60) == 0
    return offsets[0]


@pytest.mark.soak
@pytest.mark.kafka
def test_a_cluster_keeps_records_written_without_a_node_after_all_were_killed(tmp_path: Path) -> None:
    with KafkaCluster(tmp_path) as cluster:
        clients.ensure_topics(cluster.bootstrap)
        number = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).cluster_id
        victim = partitions_of(cluster.bootstrap, "orders")[0].leader
        assert write(cluster.bootstrap, 0) == 0
        cluster.node(victim).kill()
        assert write(cluster.bootstrap, 0) == 1
        cluster.start()
        cluster.wait_ready()
        cluster.kill()
        ports = [
            [getattr(broker, name) for broker in cluster.brokers] for name in ("port", "controller_port")
        ]
    with KafkaCluster(tmp_path, ports=ports[0], controller_ports=ports[1]) as again:
        assert (
            AdminClient({"bootstrap.servers": again.bootstrap}).list_topics(timeout=30).cluster_id == number
        )
        assert write(again.bootstrap, 0) == 2
    assert not [broker for broker in again.brokers if broker.process]


def test_a_folder_of_another_size_is_refused(tmp_path: Path) -> None:
    require_size(tmp_path / "none", 1)
    require_size(tmp_path / "none", SIZE)
    (tmp_path / "one" / "data").mkdir(parents=True)
    KafkaCluster(tmp_path / "three")
    for name, size in ("one", 1), ("three", SIZE):
        require_size(tmp_path / name, size)
        with pytest.raises(SandboxError, match=f"holds a Kafka of {size} brokers?: say BROKERS={size}, or"):
            require_size(tmp_path / name, 4 - size)


def test_all_nodes_are_formatted_alike(tmp_path: Path) -> None:
    first, again = KafkaCluster(tmp_path), KafkaCluster(tmp_path)
    assert len({broker.cluster_id for cluster in (first, again) for broker in cluster.brokers}) == 1
    assert len({broker.cluster_id for broker in (first.node(1), Broker(tmp_path / "alone"))}) == 2


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SandboxError, match=r"cannot write to .*: free or repair it"):
        KafkaCluster(tmp_path / "file")
