"""Rules over a snapshot of the database: what is evaluated, and the findings that come of it."""
