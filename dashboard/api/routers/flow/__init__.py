"""Routers of the data flow, Flink jobs and connectors."""
