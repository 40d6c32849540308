"""Threats to exactly-once on a cluster before a failure, from settings and habits, by rules."""
