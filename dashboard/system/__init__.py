"""Fenceline itself: roles, sign-ins, owners, its own metrics."""
