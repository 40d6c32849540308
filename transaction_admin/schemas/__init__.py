"""Kafka's messages that kafka-python lacks, in the form of its schemas."""
