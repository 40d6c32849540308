"""What threatens exactly-once on a cluster before anything has failed: from settings and habits, by rules."""
