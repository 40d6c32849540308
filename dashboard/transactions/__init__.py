"""Transactions by id: what tails save, what pages read, what the coordinators' lists correct."""
