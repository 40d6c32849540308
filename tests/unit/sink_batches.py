"""A batch of the sink: what it wrote, what was decided, and how its transactions ended."""

from fenceline.facts import TopicPartition
from fenceline.spark.records import Decided, Decision, DecisionOutcome, Done, SinkTransaction
from fenceline.spark.sink_fates import TransactionFate

NOW_MS = 1_795_000_000_000
STARTED_MS = NOW_MS - 2_000


def written(partition: int = 0, *, epoch: int = 3) -> SinkTransaction:
    name = f"orders-0a1b2c3d-p{partition}-g1-b1-s0"
    where = (TopicPartition("enriched", partition),)
    return SinkTransaction(partition, 0, name, 4_000 + partition, epoch, where, 500, STARTED_MS, 60_000)


def decided(how: Decided = Decided.PREPARED, *, number: int = 2, reason: str = "") -> Decision:
    transactions = tuple(map(written, range(number)))
    return Decision(17, 0, how, "driver", NOW_MS - 1_000, "0a1b2c3d", "q", "r", 1, transactions, (), reason)


def done(outcome: DecisionOutcome = DecisionOutcome.COMMITTED, *lost: str) -> Done:
    return Done(17, 0, outcome, NOW_MS - 500, "driver", lost)


OPEN, GOING, GOOD = TransactionFate.OPEN, TransactionFate.COMMITTING, TransactionFate.COMMITTED
BAD, DARK = TransactionFate.ABORTED, TransactionFate.UNKNOWN
