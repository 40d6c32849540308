"""Transactions by id: rows of the tails, readers for pages, corrections by the coordinators' lists."""
