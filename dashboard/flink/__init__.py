"""Flink's jobs: what their checkpoints hold, and what a restore would do."""
