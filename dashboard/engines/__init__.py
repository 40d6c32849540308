"""Flink's jobs and Kafka Connect's connectors: what checkpoints and REST APIs bring."""
