"""Alerts, channels, deliveries and silences."""
