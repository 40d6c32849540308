"""Routers of the flow of data."""
