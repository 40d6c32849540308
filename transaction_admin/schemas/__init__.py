"""Messages of Kafka that kafka-python does not have, in the form of its own schemas."""
