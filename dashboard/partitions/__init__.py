"""Watched partitions and their open transactions: the collectors' stores, and queries for pages."""
