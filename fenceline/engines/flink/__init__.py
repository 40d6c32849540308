"""The Kafka sinks' state in a Flink job's checkpoints, and the effect of a restore."""
