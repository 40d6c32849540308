"""Follow the coordinators of one cluster: the leader of each partition of `__transaction_state`, and its
moves.

It uses neither the database nor Celery. Its driver asks for `wait_s`, calls `poll` and saves the result
(`dashboard.transactions.coordinators`). Coordinators do not report their loading time; a new one has
loaded a partition once it describes an id in it.
"""

import time
from collections.abc import Collection, Mapping
from typing import Protocol

from collectors.polling import PollTimer
from fenceline.facts import TopicPartition
from fenceline.kafka.coordinator import (
    EXPIRATION,
    MAX_TIMEOUT,
    CoordinatorMove,
    ObservedCoordinators,
    find_moves,
)
from fenceline.kafka.reconcile import NotDescribed, Obstacle
from transaction_admin.api import TRANSACTION_STATE, Unseen
from transaction_admin.kafka_python import TransactionAdmin
from transaction_admin.kafka_reads import ClusterReads

#: Seconds between two polls: normally, and while a coordinator loads.
_EVERY_S, _LOADING_S = 2.0, 0.2
#: Seconds between two reads of sizes and settings.
_SIZES_EVERY_S = 60.0


class KnownCoordinators(Protocol):
    """The stored rows of one cluster (`dashboard.transactions.coordinators.CoordinatorRows`)."""

    def last_leaders(self) -> Mapping[int, tuple[int, int]]:
        """Return each partition's last leader and the poll that saw it."""

    def unanswered(self) -> Collection[CoordinatorMove]:
        """Return the moves whose new coordinator has not answered."""

    def samples(self, partitions: Collection[int]) -> Mapping[int, tuple[int, str]]:
        """Return the number of ids in each partition that has any, and one of them."""


class CoordinatorCollector(PollTimer):
    """Follows the coordinators of one cluster. `poll` raises `AdminUnavailable`."""

    def __init__(self, reads: ClusterReads, admin: TransactionAdmin, ours: KnownCoordinators) -> None:
        super().__init__()
        self._reads, self._admin, self._ours = reads, admin, ours
        self._led = dict(ours.last_leaders())
        self._sizes: Mapping[int, int] = {}
        # The ids for which the new coordinator of a move has not answered. The duration of a move that nobody
        # followed for a while is unknown.
        self._loading = {
            move.unfollowed(): _names(ours.samples(move.partitions)) for move in ours.unanswered()
        }
        self._sizes_due = time.monotonic()

    def close(self) -> None:
        self._reads.close()
        self._admin.close()

    def poll(self, now_ms: int) -> ObservedCoordinators:
        """Read the leaders, and ask loading coordinators whether they have finished."""
        before = self._cost()
        topology = self._reads.describe_topology([TRANSACTION_STATE])
        leaders = {
            where.partition: place.leader
            for where, place in topology.partitions.items()
            if place.leader is not None
        }
        moves = [*self._begin_moves(leaders, now_ms), *self._follow_loading()]
        self._led |= {partition: (leader, now_ms) for partition, leader in leaders.items()}
        sizes, settings, unseen = None, None, ""
        if time.monotonic() >= self._sizes_due or any(move.answered_ms for move in moves):
            sizes, unseen = self._ask_sizes(leaders)
            unseen = next((part.reason for part in topology.unseen), unseen)
            settings = self._ask_settings()
            self._sizes_due = time.monotonic() + _SIZES_EVERY_S
        self.set_due(time.monotonic(), _LOADING_S if self._loading else _EVERY_S)
        requests, broker_ms = self._cost()
        return ObservedCoordinators(
            now_ms,
            leaders,
            {where.partition: place.in_sync for where, place in topology.partitions.items()},
            tuple(moves),
            sizes,
            settings,
            unseen,
            requests - before[0],
            broker_ms - before[1],
        )

    def _begin_moves(self, leaders: Mapping[int, int], now_ms: int) -> list[CoordinatorMove]:
        """Return the moves since the last poll of partitions that have ids."""
        begun = []
        for (old, new), partitions in find_moves(self._led, leaders).items():
            # The present coordinator is not the target of an earlier move of these partitions.
            self._loading = {
                move: names for move, names in self._loading.items() if not {*move.partitions} & {*partitions}
            }
            samples = self._ours.samples(partitions)
            if not samples:
                continue
            before_ms = min(self._led[partition][1] for partition in samples)
            known = [self._sizes.get(partition) for partition in samples]
            size = sum(known_size or 0 for known_size in known) if None not in known else None
            ids = sum(number for number, _ in samples.values())
            move = CoordinatorMove(before_ms, now_ms, old, new, tuple(sorted(samples)), ids, size)
            self._loading[move] = _names(samples)
            begun.append(move)
        return begun

    def _follow_loading(self) -> list[CoordinatorMove]:
        """Return the moves whose new coordinator answers now."""
        now_ms = time.time_ns() // 1_000_000
        loading = {move: ids for move, ids in self._loading.items() if move.is_loading(now_ms)}
        asked = [name for ids in loading.values() for name in ids]
        described = self._admin.describe_transactions(asked, listed=True) if asked else {}
        now_ms = time.time_ns() // 1_000_000
        silent = {
            name
            for name, answer in described.items()
            if isinstance(answer, NotDescribed) and answer.obstacle is not Obstacle.UNKNOWN
        }
        loading = {move: [name for name in ids if name in silent] for move, ids in loading.items()}
        self._loading = {move: ids for move, ids in loading.items() if ids}
        return [move._replace(answered_ms=now_ms) for move, ids in loading.items() if not ids]

    def _ask_sizes(self, leaders: Mapping[int, int]) -> tuple[Mapping[int, int], str]:
        answers = self._reads.log_sizes([TopicPartition(TRANSACTION_STATE, number) for number in leaders])
        self._sizes = {where.partition: size for where, size in answers.items() if isinstance(size, int)}
        refused = next((answer.reason for answer in answers.values() if isinstance(answer, Unseen)), "")
        return self._sizes, f"{refused}; sizes take DESCRIBE on the cluster" if refused else ""

    def _ask_settings(self) -> Mapping[str, int]:
        known = {name: self._reads.broker_setting(name) for name in (EXPIRATION, MAX_TIMEOUT)}
        return {name: int(value) for name, value in known.items() if value is not None}

    def _cost(self) -> tuple[int, float]:
        ours, theirs = self._reads.cost, self._admin.cost
        return ours.requests + theirs.requests, ours.broker_ms + theirs.broker_ms


def _names(samples: Mapping[int, tuple[int, str]]) -> list[str]:
    return [name for _, name in samples.values()]
