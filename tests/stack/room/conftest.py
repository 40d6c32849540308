"""One whole stack for all files of this folder, with a broker that works and three clusters that do not.

Its tests only use it: none kills a part, and each makes topics, groups and ids of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

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


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose second listener wants a password, and gives nothing without an ACL."""
    folder = tmp_path_factory.mktemp("good")
    sasl = Sasl(users={"viewer": "right"})
    with Broker(folder, properties=PROPERTIES, sasl=sasl, authorizer=True) as broker:
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
    folder = tmp_path_factory.mktemp("room")
    config = folder / "fenceline.toml"
    config.write_text(
        CONFIG.format(
            cluster=CLUSTER,
            bootstrap=broker.bootstrap,
            late_bootstrap=late.bootstrap,
            sasl=_SASL.format(sasl_bootstrap=broker.sasl_bootstrap),
        )
    )
    with Stack(folder, CONFIG=str(config), DEMO="0") as stack:
        yield stack
