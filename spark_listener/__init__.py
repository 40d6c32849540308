"""Tells Fenceline what a Spark driver's streaming queries do. Imports pyspark and the standard library only."""
