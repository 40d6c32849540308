"""Pages of alerts: what fires, to whom it was sent, what is silenced, and the rules."""
