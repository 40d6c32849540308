"""Incidents: open findings grouped by their causes, and each group's life from tick to tick. Pure."""
