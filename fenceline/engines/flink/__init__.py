"""What a Flink job's checkpoints hold of its Kafka sinks, and what a restore would do with it."""
