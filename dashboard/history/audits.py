"""The reader of what the audit job left (`fenceline.audit.manifest`): the newest manifest of each pipeline.

Nothing here raises for what lies at the URL: whatever is wrong with it is a `ReportTrouble` in words. What
was found is good for some seconds. A store is read in a thread of its own: no page waits long for one that
hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import fsspec

from dashboard.history.report_types import ReportTrouble
from dashboard.history.stores import store_trouble
from fenceline.audit.manifest import (
    AuditManifest,
    NewerAudit,
    NotAnAudit,
    audits_folder,
    read_audit,
)
from fenceline.paths import both_spellings, to_url
from fenceline.reports import manifest_number

#: How long an answer is good, and how long a page waits for one, in seconds.
POLL_EVERY_S = 5.0
PATIENCE_S = 3.0
NOT_CONFIGURED = ReportTrouble(
    "The audit is not configured",
    "[audit] url is not set: nothing is proved at Kafka.",
    "Run spark_pipeline/audit.py on your Spark, and name its --output there.",
)
_NONE_YET, _RUN = "No audit yet", "Run the audit job."
_UNREADABLE, _KEY = "The audits cannot be read", "[audit] url"
#: How many pipelines are read, and of each how many of the newest manifests are tried.
_MOST_PIPELINES, _TRIED = 100, 3
_PREFIX = "pipeline="


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """What is there of one cluster: the newest manifest of each pipeline, and what cannot be read."""

    manifests: Sequence[AuditManifest] = ()
    troubles: Sequence[ReportTrouble] = ()


@dataclass(slots=True)
class _Cache:
    """Polls by what was asked, each with its begin; a lock, so that many requests at once poll once."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    polls: dict[tuple[str, str], tuple[float, Future[AuditStatus]]] = field(default_factory=dict)


_cache = _Cache()


def read_audits(url: str, cluster: str) -> AuditStatus:
    """Return what the job has left of a cluster below `url`; "" where none is configured."""
    if not url:
        return AuditStatus(troubles=[NOT_CONFIGURED])
    begun, poll = _newest_poll(url, cluster)
    try:
        return poll.result(max(0.0, begun + PATIENCE_S - time.monotonic()))
    except TimeoutError:
        where = f"{both_spellings(url, to_url(url))}/{audits_folder(cluster)}"
        silent = TimeoutError(f"no answer for {time.monotonic() - begun:.0f} s")
        return AuditStatus(troubles=[store_trouble(_UNREADABLE, _KEY, where, silent)])


def audited_markers(url: str, cluster: str, query_id: str, batch_id: int) -> Mapping[str, int]:
    """Return the offsets of a batch's commit markers by partition, as the newest audit found them."""
    found = (each for each in read_audits(url, cluster).manifests if each.query_id == query_id)
    batches = (batch for each in found for batch in each.batches if batch.batch_id == batch_id)
    return {f"{each.topic}-{each.partition}": each.offset for batch in batches for each in batch.markers}


def clear_cache() -> None:
    """Poll again at once."""
    _cache.polls.clear()


def _newest_poll(url: str, cluster: str) -> tuple[float, Future[AuditStatus]]:
    """Return the poll that is under way or still good, and when it began; else begin one."""
    with _cache.lock:
        begun, poll = _cache.polls.get((url, cluster), (0.0, None))
        if poll is None or (poll.done() and time.monotonic() > begun + POLL_EVERY_S):
            begun, poll = time.monotonic(), Future[AuditStatus]()
            _cache.polls[url, cluster] = begun, poll
            threading.Thread(target=_finish, args=(poll, url, cluster), daemon=True).start()
        return begun, poll


def _finish(poll: Future[AuditStatus], url: str, cluster: str) -> None:
    poll.set_result(_poll(url, cluster))


def _poll(url: str, cluster: str) -> AuditStatus:
    where = f"{both_spellings(url, to_url(url))}/{audits_folder(cluster)}"
    try:
        fs, root = fsspec.core.url_to_fs(to_url(url))
        fs.invalidate_cache()
        folder = f"{root.rstrip('/')}/{audits_folder(cluster)}"
        names = [name for name in _names(fs, folder) if name.startswith(_PREFIX)]
    except FileNotFoundError:
        return AuditStatus(troubles=[ReportTrouble(_NONE_YET, f"{where} does not exist.", _RUN)])
    except Exception as error:  # Each store has its own; none may end as a page that fails.
        return AuditStatus(troubles=[store_trouble(_UNREADABLE, _KEY, where, error)])
    if not names:
        return AuditStatus(troubles=[ReportTrouble(_NONE_YET, f"{where} holds no pipeline.", _RUN)])
    found = [_newest(fs, f"{folder}/{name}/log", f"{where}/{name}/log") for name in names[:_MOST_PIPELINES]]
    return AuditStatus(
        [each for each in found if isinstance(each, AuditManifest)],
        [*(each for each in found if isinstance(each, ReportTrouble)), *_left_out(where, names)],
    )


def _left_out(where: str, names: Sequence[str]) -> Sequence[ReportTrouble]:
    if len(names) <= _MOST_PIPELINES:
        return []
    why = f"{where} holds {len(names):,} pipelines; the first {_MOST_PIPELINES} by name are read."
    return [ReportTrouble("Not all audits are read", why, "Delete folders of pipelines that are gone.")]


def _names(fs: Any, folder: str) -> Sequence[str]:
    return sorted(str(each).rstrip("/").rpartition("/")[2] for each in fs.ls(folder, detail=False))


def _newest(fs: Any, log: str, where: str) -> AuditManifest | ReportTrouble:
    """Return the newest manifest that can be read: a driver may have died while it wrote the last one."""
    trouble = ReportTrouble(_NONE_YET, f"{where} holds no manifest.", _RUN)
    try:
        names = [name for name in _names(fs, log) if manifest_number(name) is not None]
    except FileNotFoundError:
        return trouble
    except Exception as error:  # As above.
        return store_trouble(_UNREADABLE, _KEY, where, error)
    for name in reversed(names[-_TRIED:]):
        try:
            return read_audit(fs.cat_file(f"{log}/{name}").decode(errors="replace"))
        except NewerAudit as error:
            newer = "Update this Fenceline, or run the job with the version that runs here."
            return ReportTrouble("Written by a newer Fenceline", f"{where}/{name}: {error}.", newer)
        except NotAnAudit as error:
            again = "Run the audit job again: it goes on where it was."
            trouble = ReportTrouble("The manifest cannot be read", f"{where}/{name}: {error}.", again)
        except Exception as error:  # As above.
            trouble = store_trouble(_UNREADABLE, _KEY, f"{where}/{name}", error)
    return trouble
