"""Figures over time of partitions, groups and applications: written by the nouns' own saves."""
