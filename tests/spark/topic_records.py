"""What consumers get of a topic."""

from confluent_kafka import Consumer, Message, TopicPartition


def read_messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """Return the records of a topic up to the end that this isolation level has now, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation,
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left, found = set(partitions), []
        while left:
            message = consumer.poll(30)
            assert message is not None, f"{topic} does not answer"
            if message.error() is not None:
                left.discard(message.partition())
            else:
                found.append(message)
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
