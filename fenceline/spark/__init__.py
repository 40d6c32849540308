"""What Spark is to Fenceline: checkpoints, batches, queries, what a restart does. Pure."""
