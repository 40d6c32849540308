"""Each cluster's visible parts and possible actions, from the last examination."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.models import Collector
from dashboard.runtime.collector_names import CAPABILITIES
from dashboard.runtime.leases import Lease
from dashboard.runtime.write_transactions import retry_write, write_transaction
from fenceline.decode.typed import fields_of, read_json
from fenceline.kafka.capabilities import CapabilityCheck, CapabilityState

NAME = CAPABILITIES


@dataclass(frozen=True, slots=True)
class ClusterCapabilities:
    """The capabilities of one cluster; before the first examination there are none, and no `asked_ms`."""

    cluster: str
    asked_ms: int | None = None
    checks: Sequence[CapabilityCheck] = ()
    #: Why the last examination failed; "" if it did not.
    trouble: str = ""

    @property
    def summary(self) -> str:
        if self.trouble:
            return f"could not be asked: {self.trouble}"
        if self.asked_ms is None:
            return "not checked yet"
        works = [check for check in self.checks if check.state is CapabilityState.WORKS]
        total = len(self.checks)
        return f"all {total} work" if len(works) == total else f"{len(works)} of {total} work"

    @property
    def is_whole(self) -> bool:
        """Whether all capabilities work."""
        return not self.trouble and all(check.state is CapabilityState.WORKS for check in self.checks)


def cluster_capabilities(cluster: str) -> ClusterCapabilities:
    """Return the result of a cluster's last examination."""
    details = Collector.objects.filter(cluster__name=cluster, name=NAME).values_list("detail", flat=True)
    return capabilities_in(cluster, details.first() or {})


def capabilities_in(cluster: str, detail: Mapping[str, Any]) -> ClusterCapabilities:
    """Return the capabilities in the detail of a cluster's collector."""
    if not detail:
        return ClusterCapabilities(cluster)
    checks = [read_json(CapabilityCheck, check) for check in detail.get("checks", ())]
    return ClusterCapabilities(cluster, detail["asked_ms"], checks, detail["trouble"])


def shortfall(cluster_id: int, capability: str) -> str:
    """Return why a capability is limited or missing on a cluster; "" if not known to be."""
    details = Collector.objects.filter(cluster_id=cluster_id, name=NAME).values_list("detail", flat=True)
    lacking = (CapabilityState.LIMITED, CapabilityState.MISSING)
    found = (check for detail in details for check in capabilities_in("", detail).checks)
    why = (check.why for check in found if check.name == capability and check.state in lacking)
    return next(why, "")


@retry_write
def save_capabilities(
    lease: Lease, checks: Sequence[CapabilityCheck] | None, trouble: str, *, now_ms: int
) -> None:
    """Save an examination of a cluster; without `checks` the former ones stay, with the `trouble`."""
    with write_transaction(lease, {"seen_through_ms": now_ms}, lock_cluster=False) as write:
        row = write.collector
        before = _news_in(row.detail)
        row.detail |= {"asked_ms": now_ms, "trouble": trouble}
        if checks is not None:
            row.detail["checks"] = [fields_of(check) for check in checks]
        row.save(update_fields=["detail"])
        if _news_in(row.detail) != before:
            write.notify_after_commit("collectors")


def _news_in(detail: Mapping[str, Any]) -> Sequence[Any]:
    return detail.get("checks"), detail.get("trouble", "")
