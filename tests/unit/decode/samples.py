"""Strategies that make records as a coordinator could have written them, and beyond."""

from hypothesis import strategies as st

from fenceline.decode.text import escape_bytes
from fenceline.decode.transaction_state import STATES
from fenceline.facts import TopicPartitions, TransactionRecord

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
#: None stands for -1 on the wire, so -1 itself cannot come back.
instant = st.integers(0, 253_370_764_799_999)
optional_int64 = st.none() | int64.filter(lambda number: number != -1)
optional_int16 = st.none() | int16.filter(lambda number: number != -1)

#: Raw ids: what people choose, and what Kafka lets them choose.
raw_ids = (
    st.sampled_from([b"", b"payments-7", b".", b"..", b"a\\b", b"\x00", "ünïcode ✓ 𝄞".encode(), b"\xff\xfe"])
    | st.text(max_size=40).map(lambda text: text.encode(errors="replace"))
    | st.binary(max_size=300)
)
names = st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: escape_bytes(text.encode()))
#: More than 127 of anything needs a second byte in a varint: now and then there are so many.
many = st.integers(126, 300)
partition_numbers = st.lists(int32, max_size=4).map(tuple) | many.map(lambda amount: tuple(range(amount)))
topics = st.builds(TopicPartitions, names | many.map(lambda length: "t" * length), partition_numbers)
topic_lists = st.lists(topics, max_size=3).map(tuple) | many.map(
    lambda amount: tuple(TopicPartitions(f"t{number}", (number,)) for number in range(amount))
)
partitions = st.none() | topic_lists


def records(
    names: st.SearchStrategy[str] = names, version: int | None = None
) -> st.SearchStrategy[TransactionRecord]:
    """Records of any content, in value version 0 (without tags), 1, or either."""
    head = {
        "transactional_id": names,
        "state": st.sampled_from(STATES),
        "producer_id": int64,
        "producer_epoch": int16,
        "timeout_ms": int32,
        "partitions": partitions,
        "updated_ms": instant,
        "started_ms": st.none() | instant,
    }
    tags = {
        "client_version": int16,
        "previous_producer_id": optional_int64,
        "next_producer_id": optional_int64,
        "next_producer_epoch": optional_int16,
        "last_producer_epoch": optional_int16,
    }
    # Named, for hypothesis makes up what a named tuple has defaults for.
    no_tags = {"client_version": st.just(0)} | {name: st.none() for name in list(tags)[1:]}
    old = st.builds(TransactionRecord, **head, **no_tags, value_version=st.just(0))
    new = st.builds(TransactionRecord, **head, **tags, value_version=st.just(1))
    return {0: old, 1: new, None: old | new}[version]
