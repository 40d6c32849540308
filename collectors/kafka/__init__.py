"""Read a cluster: internal topics, partitions, groups, the coordinators' lists."""
