"""What the collector of engines hands on of Flink and Kafka Connect. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fenceline.engines.connect.connectors import ConnectorStatus
from fenceline.engines.flink.job_status import FlinkRun


class EngineKind(StrEnum):
    """What answers at the REST API of an engine."""

    FLINK = "flink"
    CONNECT = "connect"


class EngineAnswer(NamedTuple):
    """What one API reported."""

    url: str
    version: str
    runs: Sequence[FlinkRun] = ()
    connectors: Sequence[ConnectorStatus] = ()
