"""Routers of the flow of data, and of the Flink jobs that it runs through."""
