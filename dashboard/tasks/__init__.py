"""Celery tasks: they connect collectors with the stores, and run the dashboard's own periodic work."""
