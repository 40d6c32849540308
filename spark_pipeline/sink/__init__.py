"""An exactly-once Kafka sink for Structured Streaming: a transaction per task, a ledger, recovery."""
