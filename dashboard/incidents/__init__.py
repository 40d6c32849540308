"""Incidents as rows: written in the evaluation tick and by operators, read by pages and the API."""
