"""Sentences about a cluster, for pages and files."""
