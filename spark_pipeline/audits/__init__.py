"""The audit job's parts: what it reads of Kafka and of a checkpoint, and what it leaves."""
