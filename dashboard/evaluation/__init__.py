"""Rules over a snapshot of the database: the evaluation, and the findings that result."""
