"""Which columns the sink takes: those of Spark's own Kafka sink, and the records' timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_pipeline.sink.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Column -> the types it may have, as Spark writes them.
TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}


def refuse_wrong(schema: StructType, topic: str | None) -> None:
    """Raise `Refused` unless the sink can write rows of this schema."""
    reasons = []
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        if name not in TYPES:
            reasons.append(f"column {name} is none of {', '.join(TYPES)}: drop it or rename it")
        elif kind not in TYPES[name]:
            reasons.append(f"column {name} is {kind}, it must be {' or '.join(TYPES[name])}: cast it")
    if "value" not in found:
        reasons.append("column value is missing")
    if "topic" not in found and topic is None:
        reasons.append("there is neither a column topic nor the option topic")
    if reasons:
        raise Refused("the sink cannot write these rows: " + "; ".join(reasons))
