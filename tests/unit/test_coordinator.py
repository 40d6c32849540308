"""Proves that ids are placed where Kafka's coordinators place them."""

import pytest

from fenceline.kafka.coordinator import java_hash, partition_for


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        (b"", 0),
        (b"a", 97),
        (b"hello", 99162322),  # from Java's own documentation of String.hashCode: s[0]*31^(n-1) + …
        (b"polygenelubricants", -(2**31)),  # the known string whose absolute value overflows
        ("𝄞".encode(), 0xD834 * 31 + 0xDD1E),  # two UTF-16 units, not one character
    ],
)
def test_it_hashes_as_java_does(name: bytes, hashed: int) -> None:
    assert java_hash(name) == hashed


@pytest.mark.parametrize(
    ("name", "partitions", "partition"),
    [
        (b"my-group", 50, 12),
        (b"kafka-txn-0", 50, 30),
        (b"polygenelubricants", 50, 0),
        (b"any", 1, 0),
    ],
)
def test_it_places_an_id(name: bytes, partitions: int, partition: int) -> None:
    assert partition_for(name, partitions) == partition
