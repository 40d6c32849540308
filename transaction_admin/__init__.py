"""Kafka's admin protocol for transactions, which confluent-kafka lacks: one Protocol and one adapter."""
