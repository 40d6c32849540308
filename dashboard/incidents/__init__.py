"""Incidents: stores for the evaluation and for operators, and queries for pages and API."""
