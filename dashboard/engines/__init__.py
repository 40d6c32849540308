"""Flink's jobs and Kafka Connect's connectors, from checkpoints and REST APIs."""
