"""Incidents as pages and files show them."""
