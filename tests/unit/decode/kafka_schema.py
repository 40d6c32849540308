"""Kafka's own schema of `__transaction_state` in kafka-python's codec: an independent check of every byte."""

from typing import Any

from kafka.protocol.api_data import ApiData

PACKAGE = "tests.data.kafka_schema"
#: What a later schema may add without a new version: only tagged fields, at any level (KIP-482).
#: KAFKA-20357, merged after 4.4. The number is the first that is free: Kafka's generator refuses a gap.
LAST_EPOCH = {
    "name": "LastProducerEpoch", "type": "int16", "default": -1, "taggedVersions": "1+", "tag": 4,
}  # fmt: skip
LATER = {"name": "Later", "type": "bytes", "taggedVersions": "1+", "versions": "1+", "default": ""}


def codec(name: str, *, later: bool = False) -> Any:
    """Return the class that `encode()`s and `decode()`s a schema's records, version in front.

    `later`: as a Kafka to come might have it, with one more tag at the end and one in each topic.
    """

    def patch(cls: type, json: dict[str, Any]) -> dict[str, Any]:
        if name == "TransactionLogValue":
            json["fields"].append(LAST_EPOCH.copy())
        if later:
            topics = next(field for field in json["fields"] if field["name"] == "TransactionPartitions")
            topics["fields"].append({**LATER, "tag": 0})
            json["fields"].append({**LATER, "tag": 5})
        return _patched(json)

    body: dict[str, Any] = {"json_patch": classmethod(patch)}
    # The metaclass loads the file that bears the class's name.
    return type(ApiData)(name, (ApiData,), body, load_json=PACKAGE)


def _patched(json: dict[str, Any]) -> dict[str, Any]:
    """Fit the schema to the codec.

    The codec has no coordinator records, requires `versions` on tagged fields too, and writes tags in the
    schema's order where Kafka writes them in their own (KIP-482).
    """
    for field in json["fields"]:
        field.setdefault("versions", field.get("taggedVersions"))
    fields = sorted(json["fields"], key=lambda field: field.get("tag", -1))
    return {**json, "type": "data", "fields": fields}


TransactionLogKey = codec("TransactionLogKey")
TransactionLogValue = codec("TransactionLogValue")
LaterValue = codec("TransactionLogValue", later=True)
