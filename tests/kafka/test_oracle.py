"""Proves that the saved facts of every transactional id equal those of Kafka's own Java tools."""

from dataclasses import replace

import pytest
from py4j.java_gateway import JavaGateway

from fenceline.decode.text import escape_bytes
from fenceline.facts import TransactionRecord, TransactionState
from sandbox.kafka import Broker
from tests.brokers import KEEP_OLD_START, create_topics
from tests.java.clients import Description, JavaAdmin, Listing
from tests.java.tools import KafkaTool
from tests.kafka.collected_partitions import COMMAND
from tests.kafka.driven import collected_transactions
from tests.kafka.random_transactions import LAST_OUTCOMES, OUTCOMES, ClientCluster, run_clients
from tests.seeds import SEED
from tests.waiting import wait_for

pytestmark = pytest.mark.kafka

#: How many transactions are played in `make test`, and in `make soak`.
FEW, MANY = 500, 5_000
#: The last few are those that a careless reader would get wrong.
STRANGE = ("oracle back\\slash", "oracle-ü-✓-𝄞", "oracle-tab\t-end", "oracle/../%2e?#&")
IDS = [f"oracle-{number}" for number in range(60 - len(STRANGE))] + list(STRANGE)


@pytest.mark.django_db
@pytest.mark.parametrize("transactions", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_every_id_equals_what_java_reports(
    kafka: Broker, tool: KafkaTool, java: JavaGateway, oracle: JavaAdmin, transactions: int
) -> None:
    topics = ("oracle-a", "oracle-b")
    create_topics(kafka.bootstrap, *topics)
    fates = run_clients(ClientCluster(kafka.bootstrap, java, oracle, topics), IDS, transactions, SEED)
    assert fates.total() == transactions
    assert set(fates) == {fate.__name__ for fate in {*OUTCOMES, *LAST_OUTCOMES}}
    wait_for(lambda: not unsettled(oracle.list_transactions()), "all markers are written")
    ours = {
        name: record for name, record in collected_transactions(kafka.bootstrap).items() if "oracle" in name
    }
    assert {name: listing(record) for name, record in ours.items()} == {
        escape_bytes(name.encode()): said
        for name, said in oracle.list_transactions().items()
        if "oracle" in name
    }
    assert {name: description(record) for name, record in ours.items()} == {
        escape_bytes(name.encode()): without_stale_start(said) if kafka.version in KEEP_OLD_START else said
        for name, said in oracle.describe_transactions(IDS).items()
    }
    assert len(ours) == len(IDS)
    assert {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    } == {record.state for record in ours.values()}
    for state in TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT:
        plain = (ours[name] for name in IDS[: -len(STRANGE)])
        record = next(record for record in plain if record.state is state)
        assert described_by_command(tool, record.transactional_id) == description(record)


def unsettled(listings: dict[str, Listing]) -> set[str]:
    """Ids whose end is decided and not yet written everywhere."""
    return {name for name, said in listings.items() if said.state in ("PrepareCommit", "PrepareAbort")}


def listing(record: TransactionRecord) -> Listing:
    """The stored record in the form of listTransactions."""
    return Listing(record.producer_id, str(record.state))


def description(record: TransactionRecord) -> Description:
    """The stored record in the form of describeTransactions."""
    return Description(
        str(record.state),
        record.timeout_ms,
        record.started_ms,
        record.producer_id,
        record.producer_epoch,
        frozenset((topic, number) for topic, numbers in record.partitions or () for number in numbers),
    )


def without_stale_start(said: Description) -> Description:
    """After an init an old coordinator still returns the start of the previous transaction, until it loads
    its partition again: it is only in memory, in the record nothing has started."""
    return replace(said, started_ms=None) if said.state == TransactionState.EMPTY else said


def described_by_command(tool: KafkaTool, transactional_id: str) -> Description:
    """What `kafka-transactions.sh describe` prints of an id that a command line takes in any locale."""
    said = tool.run(COMMAND, "describe", "--transactional-id", transactional_id)
    header, values = (line.split() for line in said.splitlines()[:2])
    row = dict(zip(header, [*values, ""], strict=False))
    started = row["CurrentTransactionStartTimeMs"]
    pairs = (name.rpartition("-") for name in row["TopicPartitions"].split(",") if name)
    return Description(
        row["TransactionState"],
        int(row["TransactionTimeoutMs"]),
        None if started == "None" else int(started),
        int(row["ProducerId"]),
        int(row["ProducerEpoch"]),
        frozenset((topic, int(number)) for topic, _, number in pairs),
    )
