"""Spark's streaming queries: the stores of checkpoints and listeners, and queries for pages and rules."""
