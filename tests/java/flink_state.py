"""What Flink itself reads of a checkpoint or savepoint, over py4j: its State Processor API gives the lists of
Kafka's sink, and the serializers of Flink and of the connector decode their entries."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import JavaGateway

from fenceline.engines.flink.records import UNKNOWN_SUBTASK
from sandbox.engines.flink import JVM_OPTIONS
from sandbox.engines.kafka import java_gateway
from sandbox.java import fetch_jars, find_java
from tests.java.clients import elements

#: What the sink with the uid `out` calls its operators, and the lists of these.
WRITER, COMMITTER = "out", "Sink Committer: out"
_WRITER_LIST, _COMMITTER_LIST = "writer_raw_states", "streaming_committer_raw_states"
_MOST = 10_000
#: The connector's own text of its classes, which have no public members. 3.4 writes no quotes.
_COMMITTABLE = re.compile(
    r"KafkaCommittable\{producerId=(\d+), epoch=(\d+), transactionalId='?([^',}]+)'?[,}]"
)
_TRANSACTION = re.compile(r"\[transactionalId=(\S+), producerId=(\d+), epoch=(\d+)\]")
_PREFIX = re.compile(r"transactionalIdPrefix='([^']*)'")
_OWNED = re.compile(r"ownedSubtaskId=(\d+), totalNumberOfOwnedSubtasks=(\d+), transactionOwnership=(\w+)")
_PRECOMMITTED = re.compile(r"CheckpointTransaction\{transactionalId='([^']*)'")


class ReadCommittable(NamedTuple):
    """A committable as Flink reads it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    checkpoint_id: int


class ReadWriter(NamedTuple):
    """A writer's state as Flink reads it; -1 and "" where the connector does not record it."""

    prefix: str
    subtask: int
    subtasks: int
    ownership: str
    precommitted: tuple[str, ...]


class ReadProducer(NamedTuple):
    """A subtask of the older sink as Flink reads it: (id, producer id, epoch) of its transactions."""

    writing: tuple[str, int, int]
    decided: tuple[tuple[str, int, int], ...]


class FlinkStateReader:
    """Reads the sink `out` in checkpoints of one version of Flink, in a JVM with its classes."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._flink: Any = gateway.jvm.org.apache.flink
        environment = self._flink.streaming.api.environment.StreamExecutionEnvironment
        self._environment = environment.createLocalEnvironment(1)
        self._sink = self._kafka_sink()
        groups = self._flink.runtime.metrics.groups
        operator = groups.UnregisteredMetricGroups.createUnregisteredOperatorMetricGroup()
        self._metrics = groups.InternalSinkCommitterMetricGroup.wrap(operator)

    def operator_id(self, uid: str) -> str:
        """Return the id that an operator has by its uid, 32 hexadecimal digits."""
        identifier = self._flink.state.api.OperatorIdentifier.forUid(uid)
        return str(identifier.getOperatorId().toHexString())

    def committables(self, checkpoint: Path) -> list[ReadCommittable]:
        """Return what a checkpoint decided to commit."""
        of = self._flink.streaming.runtime.operators.sink.committables
        serializer = of.CommittableCollectorSerializer(
            self._sink.getCommittableSerializer(), 0, 1, self._metrics
        )
        return [
            ReadCommittable(name, int(producer_id), int(epoch), manager.getCheckpointId())
            for collector in self._entries(checkpoint, COMMITTER, _COMMITTER_LIST, serializer)
            for manager in elements(collector.getCheckpointCommittablesUpTo(2**62))
            for producer_id, epoch, name in _COMMITTABLE.findall(str(manager.toString()))
        ]

    def writers(self, checkpoint: Path) -> list[ReadWriter]:
        """Return the states of the writers."""
        serializer = self._sink.getWriterStateSerializer()
        states = self._entries(checkpoint, WRITER, _WRITER_LIST, serializer)
        return [_writer(str(each.toString())) for each in states]

    def producer_states(self, checkpoint: Path) -> list[ReadProducer]:
        """Return what each subtask of the older sink has, by the serializers of Flink and its connector."""
        function = self._flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction
        older = self._flink.streaming.connectors.kafka.FlinkKafkaProducer
        api = self._flink.state.api
        serializer = function.StateSerializer(
            older.TransactionStateSerializer(), older.ContextStateSerializer()
        )
        kind = self._flink.api.common.typeinfo.TypeInformation.of(function.State().getClass())
        reader = api.SavepointReader.read(self._environment, f"file://{checkpoint}")
        states = reader.readListState(api.OperatorIdentifier.forUid(WRITER), "state", kind, serializer)
        return [_producer(state) for state in elements(states.executeAndCollect(_MOST))]

    def _entries(self, checkpoint: Path, uid: str, name: str, serializer: Any) -> Iterator[Any]:
        """Yield the entries of an operator's list, each of any subtask."""
        api = self._flink.state.api
        reader = api.SavepointReader.read(self._environment, f"file://{checkpoint}")
        array = self._flink.api.common.typeinfo.PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO
        states = reader.readListState(api.OperatorIdentifier.forUid(uid), name, array)
        versioned = self._flink.core.io.SimpleVersionedSerialization
        for raw in elements(states.executeAndCollect(_MOST)):
            yield versioned.readVersionAndDeSerialize(serializer, raw)

    def _kafka_sink(self) -> Any:
        kafka, api = self._flink.connector.kafka.sink, self._flink.api
        schema = (
            kafka.KafkaRecordSerializationSchema.builder()
            .setTopic("none")
            .setValueSerializationSchema(api.common.serialization.SimpleStringSchema())
            .build()
        )
        exactly_once = self._flink.connector.base.DeliveryGuarantee.EXACTLY_ONCE
        builder = kafka.KafkaSink.builder().setBootstrapServers("none:1").setRecordSerializer(schema)
        return builder.setDeliveryGuarantee(exactly_once).setTransactionalIdPrefix("none").build()


def _producer(state: Any) -> ReadProducer:
    shown = [state.getPendingTransaction(), *state.getPendingCommitTransactions()]
    writing, *decided = [
        (name, int(producer_id), int(epoch))
        for holder in shown
        for name, producer_id, epoch in _TRANSACTION.findall(str(holder.toString()))
    ]
    return ReadProducer(writing, tuple(decided))


def _writer(shown: str) -> ReadWriter:
    (prefix,) = _PREFIX.findall(shown)
    owned = _OWNED.search(shown)
    if owned is None:
        return ReadWriter(prefix, UNKNOWN_SUBTASK, UNKNOWN_SUBTASK, "", ())
    return ReadWriter(prefix, int(owned[1]), int(owned[2]), owned[3], tuple(_PRECOMMITTED.findall(shown)))


@contextmanager
def flink_state_reader(version: str, folder: Path) -> Iterator[FlinkStateReader]:
    """Start a JVM with a version of Flink and its State Processor API; end it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    processors = fetch_jars("flink-state-processor")
    (processor,) = (path for path in processors if path.parent.name == f"{version}.0")
    jars = [*fetch_jars(f"flink-{version}"), processor]
    with (
        (folder / "flink.log").open("ab") as log,
        java_gateway(find_java(folder), jars, log, JVM_OPTIONS) as gateway,
    ):
        yield FlinkStateReader(gateway)
