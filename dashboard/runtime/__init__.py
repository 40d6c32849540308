"""The runtime of collectors, tasks and pages: leases, task loops, notifications, gaps, retention, logs."""
