"""Proves that the schema beside the tests is the one in the jars of both brokers, as far as they have it."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sandbox.java import fetch_jars

pytestmark = pytest.mark.kafka

FOLDER = Path(__file__).parents[1] / "data" / "kafka_schema"
#: What a reader of the bytes depends on; descriptions and the like may change.
LAYOUT = ("name", "type", "versions", "taggedVersions", "tag", "default", "nullableVersions")


TRANSACTIONS, GROUPS = "kafka-transaction-coordinator", "kafka-group-coordinator"


def in_jar(version: str, name: str, coordinator: str = TRANSACTIONS) -> str:
    """The text of a schema file as the coordinator's jar carries it."""
    (jar,) = (path for path in fetch_jars(f"kafka-{version}") if path.name == f"{coordinator}-{version}.jar")
    with zipfile.ZipFile(jar) as archive:
        return archive.read(f"common/message/{name}").decode()


def layout(text: str) -> list[tuple[Any, ...]]:
    """Every field, with the fields inside it, as far as the bytes depend on it."""
    schema = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    fields = [inner for field in schema["fields"] for inner in (field, *field.get("fields", ()))]
    return [tuple(field.get(name) for name in LAYOUT) for field in fields]


@pytest.mark.parametrize("name", ["TransactionLogKey.json", "TransactionLogValue.json"])
def test_transaction_schemas_equal_those_of_kafka_4_2(name: str) -> None:
    assert (FOLDER / name).read_text() == in_jar("4.2.0", name)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in FOLDER.glob("*.json") if "Transaction" not in path.name)
)
def test_group_schemas_equal_those_of_kafka_4_2(name: str) -> None:
    assert (FOLDER / name).read_text() == in_jar("4.2.0", name, GROUPS)


def test_commits_and_members_of_kafka_3_9_are_laid_out_alike() -> None:
    """But for what 4.1 added: the topic's id, and v4 with it."""
    for name in (
        "OffsetCommitValue.json",
        "GroupMetadataValue.json",
        "ConsumerGroupMemberMetadataValue.json",
    ):
        old, new = (layout(in_jar(version, name, GROUPS)) for version in ("3.9.1", "4.2.0"))
        assert set(old) <= set(new), name
        assert {field[0] for field in set(new) - set(old)} <= {"topicId"}


def test_kafka_3_9_has_no_field_that_4_2_has_not() -> None:
    old, new = (layout(in_jar(version, "TransactionLogValue.json")) for version in ("3.9.1", "4.2.0"))
    assert set(old) <= set(new)
    assert {field[0] for field in set(new) - set(old)} <= {
        "PreviousProducerId",
        "NextProducerId",
        "ClientTransactionVersion",
        "NextProducerEpoch",
    }
