"""What differs between the versions of Kafka that Fenceline knows: each named by what it changed.

A test that is to run on every version goes into this folder. It takes the fixtures `kafka` (one broker after
the other, tests/matrix/conftest.py) and `expected` (what this one shows), and its module's `pytestmark` has
`pytest.mark.matrix`. A difference that it asserts is one more field here.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Expected:
    """One version, and what its log and its protocol show (docs/design/kafka.md §1.2 to §1.5)."""

    version: str
    #: `transaction.version`: 2 lets clients speak transaction protocol 2; 0 where the feature does not exist.
    transaction_version: int
    #: Value version of `__transaction_state`: flexible from `transaction.version` 1 on.
    record_version: int
    #: Value version of an offset commit in `__consumer_offsets`, transactional or not.
    offset_version: int
    #: By how much the coordinator's own abort raises the epoch; KAFKA-19367 made it two.
    forced_bump: int
    #: Whether records name the previous and the next producer id (tags 0 and 1, KAFKA-20310).
    names_producer_ids: bool
    #: ListTransactions: 1 filters by duration (KIP-994), 2 by a pattern too (KIP-1152).
    list_transactions: tuple[int, int]
    #: WriteTxnMarkers: 2 tells the transaction version (KIP-1228).
    write_markers: tuple[int, int]
    #: EndTxn and Produce: their versions 5 and 12 are protocol 2 (KIP-890).
    end_transaction: tuple[int, int]
    produce: tuple[int, int]

    @property
    def protocol_2(self) -> bool:
        """Whether Java's client of the tests and this broker use protocol 2."""
        return self.transaction_version == 2


V39 = Expected(
    version="3.9.1",
    transaction_version=0,
    record_version=0,
    offset_version=3,
    forced_bump=1,
    names_producer_ids=False,
    list_transactions=(0, 1),
    write_markers=(0, 1),
    end_transaction=(0, 4),
    produce=(0, 11),
)
V40 = replace(
    V39,
    version="4.0.0",
    transaction_version=2,
    record_version=1,
    forced_bump=2,
    write_markers=(1, 1),
    end_transaction=(0, 5),
    produce=(0, 12),
)
V41 = replace(
    V40, version="4.1.2", offset_version=4, forced_bump=1, list_transactions=(0, 2), produce=(0, 13)
)
V42 = replace(V41, version="4.2.0", write_markers=(1, 2))
V43 = replace(V42, version="4.3.1", names_producer_ids=True)
VERSIONS = {each.version: each for each in (V39, V40, V41, V42, V43)}
