"""The rules' limits and the retention of history: numbers of the configuration."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The rules' limits; `[limits]` in fenceline.toml.

    Names that end in `_s` are seconds, in `_percent` hundredths; all others are plain numbers.
    """

    open_too_long_s: float = 60.0
    #: Compared with the application's own past: a multiple of the 99th percentile of its commits, a minimum
    #: number of commits in a day, and a minimum duration.
    open_usual_factor: float = 3.0
    open_usual_commits: float = 50.0
    open_usual_s: float = 10.0
    #: Minimum time that a coordinator may take after a timeout: at least 1.5 times the interval of its scan
    #: (10 s).
    late_grace_s: float = 15.0
    stuck_in_prepare_s: float = 15.0
    lso_pinned_s: float = 60.0
    #: When an unmoved LSO makes its partition, and a group at it, BLOCKED. After `group_stalled_s` the group
    #: has a finding.
    group_blocked_s: float = 10.0
    group_stalled_s: float = 60.0
    #: Severity (`fenceline.findings`): after how long a blocked reader is critical; how many blocked
    #: records are critical sooner; how near a loss is critical.
    blocked_critical_s: float = 300.0
    blocked_records: float = 10_000.0
    loss_critical_s: float = 600.0
    offsets_unstable_s: float = 30.0
    #: Takeovers of one id within the window that prove two live owners.
    fencing_storm: float = 4.0
    fencing_storm_s: float = 600.0
    #: Timeouts without a commit between them, within the window.
    timeouts_in_a_row: float = 3.0
    timeouts_in_a_row_s: float = 3600.0
    #: The share of aborts among an application's ends, and a minimum number of ends in the window.
    abort_percent: float = 20.0
    abort_ends: float = 20.0
    abort_window_s: float = 600.0
    #: New ids of one application. Brokers keep them for seven days: 600 an hour are 100,800 (FLIP-511's
    #: calculation).
    new_ids_per_hour: float = 600.0
    #: How long a prepared batch may stay uncommitted; the deadline is its transactions' timeout.
    batch_prepared_s: float = 10.0
    #: The same for a transaction that a Flink checkpoint decided to commit.
    flink_commit_pending_s: float = 10.0
    #: A slow batch: a multiple of the 99th percentile, and a minimum duration.
    batch_slow_factor: float = 5.0
    batch_slow_s: float = 60.0
    #: How soon unread records of a query are deleted, at the pace of the log start.
    data_loss_s: float = 3600.0
    #: Batches with input during which the watermark has not moved.
    watermark_stalled_batches: float = 10.0
    #: The age of an overdue heartbeat; two consecutive heartbeats must be missing in any case.
    listener_silent_s: float = 12.0
    coordinator_loading_s: float = 10.0
    collector_behind_s: float = 5.0
    #: The same for collectors that poll instead of tailing: partitions, groups, lists, recoveries.
    poller_behind_s: float = 30.0
    #: Pages warn of a collector that has been late for longer than this.
    collector_late_s: float = 60.0
    gap_s: float = 60.0
    #: Minimum seconds between two questions to coordinators for their open transactions; 0 asks them nothing
    #: at all.
    reconcile_every_s: float = 1.0
    #: If `__transaction_state` cannot be read, markers in topics are: maximum megabytes per second of a
    #: broker; 0 reads none.
    markers_mb: float = 4.0
    #: Minimum seconds between two polls of consumer groups; 0 polls none.
    groups_every_s: float = 2.0
    #: Minimum seconds between two polls of partitions with an open transaction, and at least two seconds
    #: between polls of all; 0 polls none.
    partitions_every_s: float = 1.0

    #: Minimum seconds between two reads of checkpoints; 0 reads none.
    checkpoints_every_s: float = 1.0
    #: Seconds between two polls of the REST APIs of engines; 0 polls none.
    engines_every_s: float = 5.0

    @property
    def blocked_after_ms(self) -> int:
        """Return how long an LSO must be stuck to count as blocked: never later than its finding."""
        return int(1_000 * min(self.group_blocked_s, self.group_stalled_s))


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of history in days; `[retention]` in fenceline.toml."""

    transitions_d: float = 30.0
    minutes_d: float = 7.0
    hours_d: float = 400.0
    #: Series of partitions, groups and applications: each change, then by minute, then by hour.
    series_detail_d: float = 1.0
    series_minutes_d: float = 7.0
    series_hours_d: float = 400.0
    #: Batches of streaming queries, their runs and their sinks' decisions.
    batches_d: float = 90.0
    #: Closed findings, gaps and alerts, and the messages about them.
    closed_d: float = 30.0
    #: Closed incidents, with their history.
    incidents_d: float = 400.0
    #: Sign-ins, including failed ones, and sign-outs in the audit log; its changes are kept for ever.
    sign_ins_d: float = 400.0
