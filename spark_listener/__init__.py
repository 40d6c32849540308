"""Tells Fenceline what a Spark driver's streaming queries do. Imports pyspark and the standard library only.

from spark_listener import FencelineListener
spark.streams.addListener(FencelineListener("https://fenceline.example", "env:FENCELINE_TOKEN"))
"""

from __future__ import annotations

from spark_listener.listener import FencelineListener

__all__ = ["FencelineListener"]
