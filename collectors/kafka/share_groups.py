"""Share groups of one cluster (KIP-932): their progress and their isolation level."""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from fenceline.facts import Isolation, TopicPartition
from fenceline.kafka.group_observation import SeenGroup
from fenceline.kafka.groups import Committed, ShareProgress
from fenceline.kafka.partitions import Offsets
from transaction_admin.api import Unseen
from transaction_admin.kafka_reads import ClusterReads
from transaction_admin.reads import Commits, ShareProgresses

#: The configuration with a share group's isolation level, and how long an answer is valid.
_SETTING, _GOOD_S = "share.isolation.level", 60.0


class ShareGroupReader:
    """Reads share groups as if they committed offsets."""

    def __init__(self, reads: ClusterReads) -> None:
        self._reads = reads
        self._progress: Mapping[str, ShareProgresses | Unseen] = {}
        self._isolations: dict[str, tuple[float, Isolation]] = {}

    def start_offsets(self, names: Collection[str]) -> Mapping[str, Commits | Unseen]:
        """Ask for the groups' progress; return their start offsets. `at_positions` follows with the ends."""
        self._progress = self._reads.share_progress(names) if names else {}
        self._isolations = {
            name: isolation for name, isolation in self._isolations.items() if name in self._progress
        }
        return {name: _starts(progresses) for name, progresses in self._progress.items()}

    def at_positions(self, name: str, group: SeenGroup, ends: Mapping[TopicPartition, Offsets]) -> SeenGroup:
        """Return a group with the offsets that a consumer with the same progress would have committed."""
        progresses = self._progress.get(name, {})
        if isinstance(progresses, Unseen):
            return group
        isolation = self._isolation(name)
        committed = {
            where: Committed(progress.position(ends.get(where), isolation), None, "")
            for where, progress in progresses.items()
            if isinstance(progress, ShareProgress)
        }
        return replace(group, committed=committed, isolation=isolation)

    def _isolation(self, name: str) -> Isolation:
        read_s, known = self._isolations.get(name, (-math.inf, Isolation.UNKNOWN))
        if time.monotonic() - read_s >= _GOOD_S:
            setting = self._reads.group_setting(name, _SETTING)
            known = Isolation(setting) if setting in tuple(Isolation) else Isolation.UNKNOWN
            self._isolations[name] = time.monotonic(), known
        return known


def _starts(progresses: ShareProgresses | Unseen) -> Commits | Unseen:
    if isinstance(progresses, Unseen):
        return progresses
    return {
        where: progress if isinstance(progress, Unseen) else Committed(progress.start_offset, None, "")
        for where, progress in progresses.items()
    }
