"""Reports a Spark driver's streaming queries to Fenceline. Imports only pyspark and the standard library.

from spark_listener import FencelineListener
spark.streams.addListener(FencelineListener("https://fenceline.example", "env:FENCELINE_TOKEN"))
"""

from __future__ import annotations

from spark_listener.listener import FencelineListener

__all__ = ["FencelineListener"]
