"""How a cluster is read: internal topics, partitions, groups, the coordinators' lists."""
