"""Read checkpoints of streaming queries from any fsspec store."""
