"""Transactions by id: the tails' rows, queries for pages, corrections from the coordinators' lists."""
