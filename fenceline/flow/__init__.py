"""The flow of data from applications through topics to groups and queries, derived from observations."""
