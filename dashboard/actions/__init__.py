"""Actions on a user's Kafka: plan, confirm, check again, execute, audit, follow up (docs/acting.md).

`planning` inspects the cluster and makes a plan; `store` saves it; `execute` carries it out once. Only
`execute` calls the modules in `handlers`, the only modules of the dashboard that write to a user's Kafka and
to ledgers. `follow_up` follows the effects and settles actions of dead workers.
"""
