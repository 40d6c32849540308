"""`make bench`: run the benchmarks, print a table, and keep the figures in benchmarks/results/latest.json."""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import fold, intake, latency, listener, pages, spark, start

RESULTS = Path(__file__).parent / "results" / "latest.json"
#: Functions that return figures by name; their modules' docstrings describe the measurements.
BENCHMARKS = {
    "latency": latency.run,
    "start": start.run_stack,
    "fold": fold.run,
    "cold": start.run_cold,
    "audit": spark.run_audit,
    "intake": intake.run,
    "listener": listener.run,
    "pages": pages.run,
    "sink": spark.run_sink,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"bench: no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 1
    figures = {name: BENCHMARKS[name]() for name in names or BENCHMARKS}
    machine = {"cores": os.cpu_count(), "python": platform.python_version()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), **machine, **figures}, indent=2))
    for name, figure in figures.items():
        print(f"\n{name}: {BENCHMARKS[name].__module__}")
        for what, value in figure.items():
            print(f"  {what:<52} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
