"""Incidents for pages and files."""
