"""Figures over time for pages."""
