"""Proves that a path as Spark spells it becomes the URL that fsspec opens, mapped prefixes included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.spark.paths import both_spellings, join_path, scheme_of, to_url

HDFS = {"hdfs://nameservice1/": "/mnt/hdfs/"}


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3a://bucket/checkpoints/orders", "s3://bucket/checkpoints/orders"),
        ("s3n://bucket/x", "s3://bucket/x"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("S3A://bucket/x", "s3://bucket/x"),
        ("s3a://bucket", "s3://bucket"),
        ("s3a://bucket/", "s3://bucket"),
        ("file:/x", "file:///x"),
        ("file:///x", "file:///x"),
        ("file:///x/", "file:///x"),
        ("file:/x//y/./z/../w", "file:///x/y/w"),
        ("/x", "file:///x"),
        ("/", "file:///"),
        ("x/y", "file:///x/y"),
        ("/a folder/100%25", "file:///a folder/100%25"),
        ("/x/a:b", "file:///x/a:b"),
        ("x/a:b", "file:///x/a:b"),
        ("hdfs://nn:8020/x", "hdfs://nn:8020/x"),
        ("hdfs:/x", "hdfs:///x"),
        ("abfss://box@account.example/x", "abfss://box@account.example/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("memory://x/y", "memory://x/y"),
    ],
)
def test_spellings(path: str, url: str) -> None:
    assert to_url(path) == url


@pytest.mark.parametrize(
    ("path", "mapped", "url"),
    [
        ("hdfs://nameservice1/chk/orders", HDFS, "file:///mnt/hdfs/chk/orders"),
        ("hdfs://nameservice1/", HDFS, "file:///mnt/hdfs"),
        ("hdfs://nameservice2/x", HDFS, "hdfs://nameservice2/x"),
        ("dbfs:/mnt/x/y", {"dbfs:/mnt/x": "s3a://bucket"}, "s3://bucket/y"),
        ("dbfs:/mnt/xy", {"dbfs:/mnt/x": "s3a://bucket"}, "dbfs:///mnt/xy"),
        ("/data/deep/x", {"/data": "/a", "/data/deep": "/b"}, "file:///b/x"),
        ("/data/x", {"": "/a"}, "file:///data/x"),
    ],
)
def test_the_longest_mapped_prefix_is_replaced(path: str, mapped: dict[str, str], url: str) -> None:
    assert to_url(path, mapped=mapped) == url


def test_a_scheme_is_distinguished_from_a_folder_with_a_colon() -> None:
    assert [scheme_of(path) for path in ("hdfs:/x", "S3A://b/x", "file:x")] == ["hdfs", "s3a", "file"]
    assert {scheme_of(path) for path in ("/a:b", "a/b:c", "c:/x", "x", "")} == {""}


def test_below_a_folder_its_own_spelling_stays() -> None:
    assert join_path("s3a://bucket/chk", "orders", "offsets") == "s3a://bucket/chk/orders/offsets"
    assert join_path("s3a://bucket/chk/", "orders") == "s3a://bucket/chk/orders"
    assert join_path("s3a://bucket") == "s3a://bucket"


def test_two_spellings_of_a_path_are_the_same_path() -> None:
    assert to_url("s3a://bucket/x/") == to_url("s3://bucket//x")
    assert to_url("hdfs://nameservice1/x", mapped=HDFS) == to_url("file:/mnt/hdfs/x")
    assert both_spellings("s3a://bucket/x", "s3://bucket/x") == "s3a://bucket/x (opened as s3://bucket/x)"
    assert both_spellings("file:///x/", "file:///x") == "file:///x/"
    assert both_spellings("/x", "file:///x") == "/x"
    assert both_spellings("x", "file:///x") == "x (opened as file:///x)"


@given(st.text(max_size=60))
def test_any_text_becomes_a_url_that_does_not_change_again(path: str) -> None:
    url = to_url(path)
    assert "://" in url
    assert to_url(url) == url
