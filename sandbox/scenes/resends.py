"""Scenes of records sent twice and stored once: by sequence numbers, or by offsets in transactions."""

from contextlib import closing

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from sandbox import SandboxError, clients, wait_until
from sandbox.scenes import wire
from sandbox.scenes.hanging import find_leader
from sandbox.scenes.scene_context import Report, Stage, make_producer, record_value

LOST_ACK = "demo-lost-ack"
#: OUT_OF_ORDER_SEQUENCE_NUMBER.
_OUT_OF_ORDER = 45
#: A sequence number that leaves a gap after the second record.
_GAP = 9
CRASH = "demo-crash-before-offsets"
ORDERS, INVOICES = f"{CRASH}-in", f"{CRASH}-out"
RECORDS = 3
#: Seconds until a group's coordinator must be available.
_WITHIN_S = 60.0


def lost_ack(stage: Stage, report: Report) -> None:
    """A producer loses an answer and sends the same batch again; then it sends a batch after a gap."""
    clients.ensure_topics(stage.bootstrap, {LOST_ACK: 1})
    where = LOST_ACK, 0
    _, address = find_leader(AdminClient(clients.client_settings(stage.bootstrap, LOST_ACK)), *where)
    value = [record_value("lost ack")]
    with wire.Connection(address) as broker:
        identity = wire.init_idempotent(broker)
        first = wire.produce_records(broker, None, identity, where, value)
        report(f"1. producer {identity.producer_id} wrote sequence 0: it is at offset {first}")
    with wire.Connection(address) as broker:
        again = wire.produce_records(broker, None, identity, where, value)
        report(f"2. its answer was lost, and it sent the batch again: the broker answered offset {again}")
        if again != first:
            raise SandboxError(f"the broker stored the resend, at offset {again}")
        following = wire.produce_records(broker, None, identity, where, value, sequence=1)
        report(f"3. sequence 1 is at offset {following}: one batch was stored for two that were sent")
        _leave_gap(broker, identity, where, report)
    report(f"Look for: {LOST_ACK}-0@{first}; the next batch has the next sequence. Brokers count no resends")


def _leave_gap(
    broker: wire.Connection, identity: wire.Identity, where: tuple[str, int], report: Report
) -> None:
    try:
        wire.produce_records(broker, None, identity, where, [record_value("gap")], sequence=_GAP)
    except wire.CoordinatorRefused as refused:
        if refused.code != _OUT_OF_ORDER:
            raise
        report(f"4. sequence {_GAP} leaves a gap, and was refused: OUT_OF_ORDER_SEQUENCE_NUMBER")
    else:
        raise SandboxError("the broker took a sequence that leaves a gap")


def crash_before_offsets(stage: Stage, report: Report) -> None:
    """An application writes its output and dies before adding its offsets; it restarts and repeats both."""
    clients.ensure_topics(stage.bootstrap, {ORDERS: 1, INVOICES: 1})
    source = Producer({**clients.client_settings(stage.bootstrap, CRASH), "enable.idempotence": True})
    for number in range(RECORDS):
        source.produce(ORDERS, record_value(f"order {number}"), partition=0)
    source.flush(30)
    first = make_producer(stage.bootstrap, CRASH)
    read = _process(stage, first, end=False)
    report(f"1. {CRASH} has read {read} records and written {read}, and dies before it adds its offsets")
    del first
    second = make_producer(stage.bootstrap, CRASH)
    report("2. it is back: its coordinator aborts what was open, and its group's offset is where it was")
    again = _process(stage, second, end=True)
    report(f"3. it has read the same {again} records, written {again}, and committed them with its offsets")
    if read != again:
        raise SandboxError(f"it read {read} records first and {again} then")
    report(f"Look for: {CRASH}, re-initialised, its output aborted; then a commit with its group's offsets")


def _committed(consumer: Consumer, where: TopicPartition) -> TopicPartition | None:
    """Return the group's committed offset, None while its coordinator is not available yet."""
    try:
        return consumer.committed([where], timeout=10)[0]
    except KafkaException:
        return None


def _process(stage: Stage, producer: Producer, *, end: bool) -> int:
    """Read the group's unread records, and write as many in a transaction; return their number."""
    own = {"group.id": CRASH, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    settings = {**clients.client_settings(stage.bootstrap, CRASH), **own, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        where = TopicPartition(ORDERS, 0)
        read = wait_until(lambda: _committed(consumer, where), f"offsets of {CRASH}", _WITHIN_S)
        start, last = max(0, read.offset), consumer.get_watermark_offsets(where, timeout=30)[1]
        producer.begin_transaction()
        for number in range(start, last):
            producer.produce(INVOICES, record_value(f"invoice {number}"), partition=0)
        producer.flush(30)
        if end:
            done = [TopicPartition(ORDERS, 0, last)]
            producer.send_offsets_to_transaction(done, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
        return last - start
