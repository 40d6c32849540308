"""Fenceline's model of Spark: checkpoints, batches, queries, the effect of a restart. Pure."""
