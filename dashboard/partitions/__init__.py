"""Watched partitions and what is open in them: what collectors save, what pages read."""
