"""Where checkpoints and their ledgers are kept: local folders, stores of fsspec, HDFS."""
