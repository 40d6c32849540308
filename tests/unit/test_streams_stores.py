"""Proves which state stores of Kafka Streams follow from a description, and from names of topics."""

from fenceline.engines.streams import (
    StreamsStore,
    StreamsTasks,
    Subtopology,
    described_stores,
    named_stores,
)


def test_each_changelog_is_a_store_with_the_tasks_of_its_subtopology() -> None:
    topology = [
        Subtopology("0", ("orders",), ()),
        Subtopology("1", ("shop-by-user-repartition",), ("shop-totals-changelog", "shop-counts-changelog")),
    ]
    tasks = StreamsTasks({"0": 3, "1": 4}, {"1": 2}, {})
    assert described_stores(topology, tasks) == [
        StreamsStore("shop-counts-changelog", ("shop-by-user-repartition",), 4, 2, 0),
        StreamsStore("shop-totals-changelog", ("shop-by-user-repartition",), 4, 2, 0),
    ]


def test_names_alone_tell_no_tasks() -> None:
    topics = ["shop-counts-changelog", "shop-by-user-repartition", "shopping-x-changelog", "shop-", "other"]
    (store,) = named_stores("shop", topics)
    assert store == StreamsStore("shop-counts-changelog")
    assert store.name_in("shop") == "counts"
    assert named_stores("", ["-x-changelog"]) == [StreamsStore("-x-changelog")]
