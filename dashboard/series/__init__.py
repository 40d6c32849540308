"""Figures over time of partitions, groups and applications, written by their own stores."""
