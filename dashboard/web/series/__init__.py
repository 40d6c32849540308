"""Figures over time, as pages show them."""
