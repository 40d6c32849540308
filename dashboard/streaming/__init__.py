"""Spark's streaming queries: what checkpoints and listeners bring, what pages and rules read."""
