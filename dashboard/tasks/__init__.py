"""Celery tasks: they wire collectors to what is saved, and run what the dashboard does by itself."""
