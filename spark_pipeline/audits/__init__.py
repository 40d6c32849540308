"""Parts of the audit job: its reads of Kafka and of a checkpoint, and its output."""
