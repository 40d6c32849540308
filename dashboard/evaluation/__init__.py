"""The evaluation: rules over a snapshot of the database, and their findings."""
