"""How data flows: from applications through topics to groups and queries, derived from what was observed."""
