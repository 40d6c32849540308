"""The sandbox's broker keeps its data and reports why it cannot start. Three brokers are one cluster: it
outlives any one of them, and its folder gives it again with its data."""

import socket
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sandbox import SandboxError, clients, prepared
from sandbox.cluster import SIZE, KafkaCluster, require_size
from sandbox.jar_sets import EVERYDAY_KAFKA
from sandbox.kafka import Broker, explain_log, live_brokers
from tests.brokers import create_topics, kafka_42
from tests.cases import cases
from tests.kafka.three.test_cluster import partitions_of

pytestmark = pytest.mark.kafka
__all__ = ["kafka_42"]
_NEWEST, *_OTHERS = EVERYDAY_KAFKA
BY_VERSION = [_NEWEST, *(pytest.param(each, marks=pytest.mark.matrix) for each in _OTHERS)]


@pytest.mark.matrix
@pytest.mark.parametrize("version", BY_VERSION)
def test_it_keeps_its_topics_through_a_kill(tmp_path: Path, version: str) -> None:
    broker = Broker(tmp_path, version=version)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topics(broker.bootstrap, "kept")
        cluster = admin.list_topics(timeout=10).cluster_id
        broker.kill()
        broker.start()
        broker.wait_ready()
        again = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=10)
        assert again.cluster_id == cluster
        assert len(again.topics["kept"].partitions) == 3
    assert broker.process is None


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = Broker(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(SandboxError, match=r"port \d+ \(Kafka\) is not usable: Address already in use"):
            broker.start()


def test_a_second_broker_on_the_same_folder_is_refused_without_damage(kafka_42: Broker) -> None:
    folder = kafka_42.folder
    before = (folder / "server.properties").read_bytes()
    with pytest.raises(SandboxError, match=f"another broker runs on {folder}: stop it first"):
        Broker(folder).start()
    assert (folder / "server.properties").read_bytes() == before
    assert live_brokers(kafka_42.bootstrap)


def test_a_broker_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    broker = Broker(tmp_path, properties={"log.retention.ms": "soon"})
    with pytest.raises(SandboxError, match="soon"), broker:
        pass


@pytest.mark.parametrize("version", BY_VERSION)
def test_a_copied_format_equals_that_of_the_tool(tmp_path: Path, version: str) -> None:
    """But for the id of the folder, and the times and sums of the checkpoint's batches."""
    cluster_id = prepared.new_id()
    by_tool, copied = (
        Broker(tmp_path / name, version, node_id=3, cluster_id=cluster_id) for name in ("tool", "copy")
    )
    copied.prepare()
    by_tool.prepare()
    for path in formatted(by_tool):
        path.unlink()
    by_tool.format_with_tool(cluster_id)
    assert [path.name for path in formatted(by_tool)] == [path.name for path in formatted(copied)]
    (made, ids), (copy, copied_ids) = (formatted(broker) for broker in (by_tool, copied))
    assert without_times(copy.read_bytes()) == without_times(made.read_bytes())
    rows, copied_rows = properties(ids), properties(copied_ids)
    assert rows.pop("directory.id") != copied_rows.pop("directory.id")
    assert copied_rows == rows == {"node.id": "3", "cluster.id": cluster_id, "version": "1"}


def formatted(broker: Broker) -> list[Path]:
    return sorted((broker.folder / "data").iterdir())


def properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def without_times(batches: bytes) -> bytes:
    """Return record batches (format 2) with checksum, first and last timestamp as zeros."""
    left, at = bytearray(batches), 0
    while at < len(left):
        left[at + 17 : at + 21] = bytes(4)
        left[at + 27 : at + 43] = bytes(16)
        at += 12 + int.from_bytes(left[at + 8 : at + 12])
    return bytes(left)


def test_an_unknown_version_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        SandboxError, match=r"no Kafka 9\.9\.9 in the lock file: choose one of 4\.2\.0, 3\.9\.1"
    ):
        Broker(tmp_path, version="9.9.9")


@cases(
    ("java.io.IOException: No space left on device\n\tat x", "the disk is full"),
    ("ERROR a\n\tat b\nERROR the last one\nINFO bye", "ERROR the last one"),
    ("", "it logged nothing"),
)
def test_the_decisive_line_of_a_log_is_reported(log: str, reason: str) -> None:
    assert explain_log(log).startswith(reason)


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
