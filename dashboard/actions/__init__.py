"""Acting on a user's Kafka: plan, confirm, look again, execute, audit, follow (docs/acting.md).

`planning` looks and makes a plan; `rows` keeps it; `execute` has it done, once. It alone calls `fence`,
`abort_marker` and `batches`, the only modules of the dashboard that write to a user's Kafka and to ledgers.
`watch` follows what was done and settles what a dead worker has left.
"""
