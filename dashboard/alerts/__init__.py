"""Findings over time and their notification: engine and payload (pure), tick, deliver."""
