"""Celery tasks that read brokers, checkpoints and engines, and hand the facts to the store."""
