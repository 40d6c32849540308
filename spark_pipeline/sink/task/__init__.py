"""The sink's task on an executor: write rows as records in a transaction, and leave it open."""
