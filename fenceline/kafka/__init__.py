"""What Kafka is to Fenceline: records and transitions of transactions, partitions, groups, commits. Pure."""
