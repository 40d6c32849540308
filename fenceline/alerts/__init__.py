"""Alerts, and the decision who is notified: without a database, a clock or a socket."""
