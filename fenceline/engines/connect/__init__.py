"""Kafka Connect and its connectors: what their REST API reports, and the topics of Debezium."""
