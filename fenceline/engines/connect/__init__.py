"""Kafka Connect and its connectors: the reports of their REST API, and the topics of Debezium."""
