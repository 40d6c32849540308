"""One whole stack for all files of this folder, with a broker that works and three clusters that do not.

Its tests only use it: none kills a part, and each makes topics, groups and ids of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.kafka import Broker, Sasl
from tests.brokers import PROPERTIES
from tests.deployment import Stack

#: The cluster that works.
CLUSTER = "shop"
_SASL = """
"bootstrap.servers" = "{sasl_bootstrap}"
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "viewer"
"""
CONFIG = """
[clusters.{cluster}]
"bootstrap.servers" = "{bootstrap}"

[clusters.unreachable]
"bootstrap.servers" = "{late_bootstrap}"

[clusters.denied]
{sasl}"sasl.password" = "right"

[clusters.wrong]
{sasl}"sasl.password" = "wr0ng"

[limits]
open_too_long_s = 5
open_usual_s = 5
lso_pinned_s = 5
group_stalled_s = 5

[alerts]
for_ticks = 2
resolve_ticks = 2
group_wait_s = 1
group_interval_s = 1
allow_private = ["127.0.0.1"]
"""


def new_broker(folder: Path) -> Broker:
    """Return a broker whose second listener wants a password, and gives nothing without an ACL."""
    return Broker(folder, properties=PROPERTIES, sasl=Sasl(users={"viewer": "right"}), authorizer=True)


def new_stack(folder: Path, broker: Broker, late: Broker) -> Stack:
    """Return `make up` on these clusters."""
    config = folder / "fenceline.toml"
    sasl = _SASL.format(sasl_bootstrap=broker.sasl_bootstrap)
    addresses = {"bootstrap": broker.bootstrap, "late_bootstrap": late.bootstrap, "sasl": sasl}
    config.write_text(CONFIG.format(cluster=CLUSTER, **addresses))
    return Stack(folder, CONFIG=str(config), DEMO="0")


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for all of them."""
    with new_broker(tmp_path_factory.mktemp("good")) as broker:
        yield broker


@pytest.fixture(scope="package")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose address is configured and that is not started."""
    broker = Broker(tmp_path_factory.mktemp("late"))
    yield broker
    broker.kill()


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory, broker: Broker, late: Broker) -> Iterator[Stack]:
    """`make up` on these clusters."""
    with new_stack(tmp_path_factory.mktemp("room"), broker, late) as stack:
        yield stack
