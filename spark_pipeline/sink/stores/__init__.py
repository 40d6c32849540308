"""Stores of checkpoints and their ledgers: local folders, fsspec's stores, HDFS."""
