"""Actions on a user's Kafka: plan, confirm, check again, execute, audit, follow up (docs/acting.md).

`planning` inspects the cluster and makes a plan; `store` keeps it; `execute` carries it out, once. It alone
calls `fence`, `abort_marker` and `batches`, the only modules of the dashboard that write to a user's Kafka
and to ledgers. `watch` follows what was done and settles what a dead worker has left.
"""
