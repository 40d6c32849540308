"""Routers of alerts, channels, deliveries and silences."""
