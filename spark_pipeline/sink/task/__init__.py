"""What a task of the sink does, on an executor: rows to records, in a transaction that it leaves open."""
