"""The collector's facts about Flink and Kafka Connect. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fenceline.engines.connect import ConnectorStatus
from fenceline.engines.flink.job_status import FlinkRun


class EngineKind(StrEnum):
    """The product behind an engine's REST API."""

    FLINK = "flink"
    CONNECT = "connect"


class EngineAnswer(NamedTuple):
    url: str
    version: str
    runs: Sequence[FlinkRun] = ()
    connectors: Sequence[ConnectorStatus] = ()
