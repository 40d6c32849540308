"""Proves that what the client reads of each answer is described by the API, of the same type."""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from fenceline_client import shapes

DESCRIBED = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())["components"][
    "schemas"
]
PLAIN = {"string": str, "integer": int, "boolean": bool}
SCHEMAS = {
    shapes.WatchedCluster: "ClusterOut",
    shapes.ListedCollector: "CollectorOut",
    shapes.UnseenPart: "Gap",
    shapes.ListedIncident: "IncidentOut",
    shapes.FullIncident: "IncidentDetail",
    shapes.RelatedFinding: "FindingOut",
    shapes.ListedTransaction: "TransactionOut",
    shapes.FullTransaction: "TransactionDetail",
    shapes.ListedGroup: "GroupOut",
    shapes.FullGroup: "GroupDetail",
    shapes.ListedQuery: "QueryOut",
    shapes.FullQuery: "QueryDetail",
    shapes.StopSafety: "SafeAnswer",
    shapes.ListedPartition: "PartitionOut",
    shapes.FullPartition: "PartitionDetail",
    shapes.PlannedAction: "OneActionOut",
    shapes.CapabilityReport: "CapabilitiesOut",
    shapes.PreflightReport: "PreflightOut",
}


@pytest.mark.parametrize("shape", SCHEMAS, ids=lambda shape: shape.__name__)
def test_each_field_is_the_apis(shape: type) -> None:
    assert list(differences(shape, DESCRIBED[SCHEMAS[shape]])) == []


def differences(shape: Any, schema: Mapping[str, Any], place: str = "") -> list[str]:
    """Return the fields of a shape, and of those in it, that a schema lacks or describes otherwise."""
    hints, wrong = get_type_hints(shape), []
    for field in fields(shape):
        where = f"{place}.{field.name}"
        described = schema["properties"].get(field.name)
        if described is None or field.name not in schema["required"]:
            wrong.append(f"{where}: missing")
        else:
            wrong += compared(hints[field.name], resolved(described), where)
    return wrong


def compared(hint: Any, described: Mapping[str, Any], where: str) -> list[str]:
    choices = [resolved(choice) for choice in described.get("anyOf", [described])]
    types_there = [choice for choice in choices if choice.get("type") != "null"]
    is_optional = isinstance(hint, types.UnionType)
    if is_optional != (len(types_there) < len(choices)):
        return [f"{where}: null or not"]
    inner = next(part for part in get_args(hint) if part is not type(None)) if is_optional else hint
    there, *others = types_there
    if others:  # An enumeration, or "".
        return [] if all(choice["type"] == "string" for choice in types_there) else [f"{where}: several"]
    if is_dataclass(inner):
        return differences(inner, there, where)
    if get_origin(inner) is tuple:
        return compared(get_args(inner)[0], resolved(there["items"]), f"{where}[]")
    if get_origin(inner) is Mapping:
        return compared(get_args(inner)[1], there["additionalProperties"], f"{where}[]")
    return [] if PLAIN[there["type"]] is inner else [f"{where}: {there['type']}"]


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that another one names."""
    name = schema.get("$ref") or (schema["allOf"][0]["$ref"] if "allOf" in schema else "")
    return DESCRIBED[name.rpartition("/")[2]] if name else schema
