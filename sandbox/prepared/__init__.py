"""Prepare class archives and a formatted folder once, for every start of a Kafka or a Spark."""
