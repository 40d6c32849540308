"""Flink and Kafka Connect: the contents of their checkpoints and REST APIs."""
