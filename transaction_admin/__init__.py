"""Kafka's admin protocol for transactions, which confluent-kafka lacks, by kafka-python."""
