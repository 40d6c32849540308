"""Fenceline itself: who may do what, who signs in, owners, its own metrics."""
