"""`manage.py doctor [CLUSTER]`: try everything that Fenceline needs, with a remedy for each failure."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper as SqliteConnection

from collectors.doctor.examination import CheckStatus, DoctorCheck, examine_cluster
from dashboard.config import ClusterConfig
from dashboard.system.readiness import find_troubles, redis_version

#: The heading of the checks of this machine's own parts.
_HERE = "this Fenceline"
#: The limit for all checks of one cluster, in multiples of a request's timeout.
_QUESTIONS = 12
_REMEDIES = {
    "database": "check DATABASE_URL and that the database runs; `make up` brings its own",
    "redis": "check REDIS_URL and that Redis runs; `make up` brings its own",
    "migrations": "manage.py prepare",
}


class Command(BaseCommand):
    """Print a line for each check, its remedies below it; exit status 1 if one fails."""

    help = "Try what Fenceline needs of its own parts and of each cluster. It writes and creates nothing."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take a cluster's name, the output format and the timeout of a request."""
        parser.add_argument("cluster", nargs="?", help="which cluster; all of them without one")
        parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
        parser.add_argument(
            "--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="how long one question may wait"
        )

    def handle(self, *args: Any, cluster: str | None, **options: Any) -> None:
        """Make the checks and print each at once, or all as JSON."""
        made: list[tuple[str, DoctorCheck]] = []
        for subject, check in _checks(_asked_for(cluster), options["timeout"]):
            if not options["json"]:
                self._print(check, subject if not made or made[-1][0] != subject else "")
            made.append((subject, check))
        counts = Counter(check.status for _, check in made)
        if options["json"]:
            self.stdout.write(json.dumps(_document(made), indent=2, ensure_ascii=False))
        else:
            self.stdout.write("\n" + ", ".join(f"{counts[status]} {status}" for status in CheckStatus))
        if counts[CheckStatus.FAIL]:
            sys.exit(1)

    def _print(self, check: DoctorCheck, heading: str) -> None:
        if heading:
            self.stdout.write(f"\n{heading}")
        self.stdout.write(f"{check.status:<4}  {check.what}: {check.detail}")
        for line in check.remedies:
            self.stdout.write(f"        {line}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to 600")
    return seconds


def _asked_for(name: str | None) -> Mapping[str, ClusterConfig]:
    clusters: Mapping[str, ClusterConfig] = settings.FENCELINE.clusters
    if name is None:
        return clusters
    if name not in clusters:
        known = ", ".join(clusters) or "none"
        raise CommandError(f"No cluster '{name}' is configured in {settings.FENCELINE.path}; known: {known}.")
    return {name: clusters[name]}


def _checks(clusters: Mapping[str, ClusterConfig], timeout_s: float) -> Iterator[tuple[str, DoctorCheck]]:
    for check in _own_parts():
        yield _HERE, check
    for name, cluster in clusters.items():
        checks = examine_cluster(
            cluster.properties,
            sees_all_ids=cluster.sees_all_transactional_ids,
            timeout_s=timeout_s,
            patience_s=timeout_s * _QUESTIONS,
            scope=cluster.scope,
        )
        for check in checks:
            yield f"cluster {name}", check


def _own_parts() -> Iterator[DoctorCheck]:
    if not settings.FENCELINE.clusters:
        remedy = "write one into fenceline.toml (see fenceline.example.toml) and name it by FENCELINE_CONFIG"
        yield DoctorCheck(CheckStatus.FAIL, "configuration", "no cluster is configured", (remedy,))
    if _is_missing_file():
        # Opening the database would create it.
        yield DoctorCheck(
            CheckStatus.FAIL, "database", f"there is no {_database_name()} yet", (_REMEDIES["migrations"],)
        )
        return
    for part, trouble in find_troubles().items():
        if trouble:
            yield DoctorCheck(CheckStatus.FAIL, part, trouble, (_REMEDIES[part],))
        else:
            yield DoctorCheck(CheckStatus.OK, part, _detail(part))


def _detail(part: str) -> str:
    """Return the known facts about a working part."""
    if part == "migrations":
        return "all applied"
    version = redis_version() if part == "redis" else ""
    return f"answers ({version})" if version else "answers"


def _is_missing_file() -> bool:
    database = connections["default"]
    return isinstance(database, SqliteConnection) and not (
        database.is_in_memory_db() or Path(_database_name()).exists()
    )


def _database_name() -> str:
    return str(connections["default"].settings_dict["NAME"])


def _document(made: list[tuple[str, DoctorCheck]]) -> Mapping[str, Any]:
    return {
        "ok": all(check.status is not CheckStatus.FAIL for _, check in made),
        "checks": [{"subject": subject, **check._asdict()} for subject, check in made],
    }
