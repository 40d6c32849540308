"""Alerts and their notification: the evaluator, the delivery to channels, silences."""
