"""`manage.py check_exactly_once [CLUSTER]`: the pre-flight of each cluster, for people and for CI."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from dashboard.flow.preflight import Preflight, examine_setup
from dashboard.runtime import loop, visibility
from fenceline.facts import Severity

#: The severities that make the command fail, by the option's value.
_FAILING: Mapping[str, tuple[Severity, ...]] = {
    "critical": (Severity.CRITICAL,),
    "warning": (Severity.CRITICAL, Severity.WARNING),
}


class Command(BaseCommand):
    """Print each mistake with its risk, remedy and source; exit status 1 for one of the given severity."""

    help = "Find settings and habits that threaten exactly-once. It writes and creates nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a cluster's name, the output format, and the failing severity."""
        parser.add_argument("cluster", nargs="?", default="", help="which cluster; all of them without one")
        parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
        parser.add_argument(
            "--fail-on", choices=sorted(_FAILING), default="critical", help="what exit status 1 is for"
        )

    def handle(self, *args: Any, cluster: str, **options: Any) -> None:
        """Examine the clusters and print the mistakes."""
        wanted = visibility.clusters_named(cluster)
        if not wanted:
            known = ", ".join(row.name for row in visibility.configured_clusters()) or "none"
            raise CommandError(f"No cluster '{cluster}' is watched; known: {known}.")
        found = [examine_setup(row, now_ms=loop.now_ms()) for row in wanted]
        if options["json"]:
            self.stdout.write(
                json.dumps([_document(report) for report in found], indent=2, ensure_ascii=False)
            )
        else:
            for report in found:
                self._print(report)
        failing = _FAILING[options["fail_on"]]
        if any(risk.severity in failing for report in found for risk in report.risks):
            sys.exit(1)

    def _print(self, found: Preflight) -> None:
        self.stdout.write(f"\ncluster {found.cluster}: {len(found.risks)} found")
        for risk in found.risks:
            self.stdout.write(f"{risk.severity:<8}  {risk.subject}: {risk.fact}")
            for word, text in (("risk", risk.risk), ("remedy", risk.remedy), ("source", risk.source)):
                self.stdout.write(f"          {word}: {text}")
        for reason in found.unseen:
            self.stdout.write(f"unseen    {reason}")


def _document(found: Preflight) -> Mapping[str, Any]:
    return {
        "cluster": found.cluster,
        "risks": [risk._asdict() for risk in found.risks],
        "unseen": list(found.unseen),
        "examined": dict(found.examined),
    }
