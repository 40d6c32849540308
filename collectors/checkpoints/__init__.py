"""How checkpoints of streaming queries are read, on any fsspec store."""
