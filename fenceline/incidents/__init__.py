"""Incidents: open findings grouped by their causes, and how each group goes on from tick to tick. Pure."""
