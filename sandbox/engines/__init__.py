"""Engines that write to Kafka exactly once, each in a JVM of its own: Flink, Kafka Streams, Kafka Connect."""
