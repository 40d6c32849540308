"""Shared by all findings: the names of their rules, and their severity."""
