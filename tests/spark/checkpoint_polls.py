"""Polls one checkpoint with the real collector and counts what it reports, as a process of its own:

    python -m tests.spark.checkpoint_polls FOLDER POLLS STAT_S THREADS

STAT_S is how long the store takes to answer about one file. Each thread has a collector of its own.
"""

import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from collectors.checkpoints import store as checkpoint_stores
from collectors.checkpoints.collector import CheckpointsCollector
from dashboard.config import CheckpointRoot
from fenceline.spark.restart_prediction import RestartVerdict, predict_restart

_HEALTHY = {RestartVerdict.CLEAN, RestartVerdict.REPLAY, RestartVerdict.IN_FLIGHT}


def slow_down(stat_s: float) -> None:
    """Let every answer about a file take so long."""
    asked = checkpoint_stores._local

    def slowly(entry: object) -> object:
        time.sleep(stat_s)
        return asked(entry)  # type: ignore[arg-type]

    if stat_s:
        checkpoint_stores._local = slowly  # type: ignore[assignment]


def poll_checkpoint(folder: str, polls: int) -> Counter[str]:
    """Look so often; return how many polls, verdicts, wrong ones and changes of them there were."""
    watch = CheckpointsCollector([CheckpointRoot(folder, "sandbox")])
    counts: Counter[str] = Counter()
    before, newest = True, -1
    for _ in range(polls):
        looked = watch.poll(0, every_s=1)
        watch.mark_saved()
        counts["polls"] += 1
        counts["gaps"] += len(looked.gaps)
        counts["gone"] += len(looked.gone)
        for each in looked.observations:
            verdict = predict_restart(each.checkpoint, alive=None).verdict
            healthy = verdict in _HEALTHY
            counts["verdicts"] += 1
            counts[verdict.value] += 1
            counts["wrong"] += not healthy
            counts["flaps"] += healthy != before
            counts["moved"] += (each.checkpoint.newest_planned or 0) > newest
            before, newest = healthy, each.checkpoint.newest_planned or 0
    return counts


def main(folder: str, polls: str, stat_s: str, threads: str) -> None:
    """Poll, and print the counts as JSON."""
    slow_down(float(stat_s))
    many = int(threads)
    with ThreadPoolExecutor(many) as pool:
        found = list(pool.map(lambda _: poll_checkpoint(folder, int(polls) // many), range(many)))
    print(json.dumps(sum(found, Counter())))


if __name__ == "__main__":
    main(*sys.argv[1:])
