"""Handlers of the kinds of actions: each executes an action on one subject, or reads its outcome."""
