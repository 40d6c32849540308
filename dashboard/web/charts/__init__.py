"""Figures, as Plotly takes them."""
