"""Read the checkpoints of Flink's jobs from any store of fsspec."""
