"""Reads the checkpoints of Flink's jobs on any store of fsspec."""
