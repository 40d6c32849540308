"""Kafka's admin side of transactions, which confluent-kafka lacks: one Protocol, one adapter behind it."""
