"""Groups of Kafka Streams of one cluster (KIP-1071): read their state stores once a minute."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence

from fenceline.engines.streams import StreamsStore
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads

_GOOD_S = 60.0


class StreamsGroupReader:
    """Reads the stores of Streams groups."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._read_s = -math.inf
        self._names: frozenset[str] = frozenset()

    def stores(self, names: Collection[str]) -> Mapping[str, Sequence[StreamsStore]]:
        """Return the stores of due groups, without groups whose coordinator does not answer."""
        if not names or (time.monotonic() - self._read_s < _GOOD_S and self._names >= set(names)):
            return {}
        self._read_s, self._names = time.monotonic(), frozenset(names)
        answers = self._reads.streams_stores(names)
        return {name: stores for name, stores in answers.items() if not isinstance(stores, Unseen)}
