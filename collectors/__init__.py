"""What Fenceline sees: Celery tasks that turn brokers into facts and hand them to the store."""
