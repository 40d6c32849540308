"""What collectors, tasks and pages run on: leases, the loop of a task, notifications, gaps, retention,
logs."""
