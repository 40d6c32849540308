"""Flink and Kafka Connect: what their checkpoints and REST APIs contain."""
