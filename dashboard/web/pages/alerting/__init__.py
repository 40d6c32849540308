"""Pages of alerts, deliveries, silences, channels and rules."""
