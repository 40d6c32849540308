"""`fenceline watch`: incidents as they open, change and close."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import click

from fenceline_client import shapes
from fenceline_client.client import ApiRefusal, ClientError, FencelineClient, known
from fenceline_client.terminal import CommandLine, cluster_option, json_option, printable, say, warn

#: Open incidents that are followed.
_MOST_WATCHED = 5_000


@click.command()
@click.option("--interval", default=3.0, type=click.FloatRange(1, 3_600), show_default=True,
              help="Seconds between two polls.")  # fmt: skip
@cluster_option
@json_option
@click.pass_obj
def watch(line: CommandLine, interval: float, cluster: str, as_json: bool) -> None:
    """Print open incidents, then each that opens, changes or closes, until Ctrl-C."""
    show = _say_change_json if as_json else _say_change
    before = _open_incidents(line.client, cluster)
    for number in sorted(before):
        show("open", before[number])
    if not (before or as_json):
        say("No incident is open.")
    trouble = ""
    while True:
        time.sleep(interval)
        try:
            now = _open_incidents(line.client, cluster)
            for change, row in _changes(line.client, before, now):
                show(change, row)
            before, trouble = now, ""
        except ClientError as error:
            trouble = _say_trouble(error, trouble)


def _say_trouble(error: ClientError, before: str) -> str:
    """Say once that polls fail, and return the trouble; raise what no later poll can mend."""
    if isinstance(error, ApiRefusal) and error.status < 500 and error.status != 429:
        raise error
    if str(error) != before:
        warn(str(error))
    return str(error)


def _open_incidents(client: FencelineClient, cluster: str) -> dict[int, shapes.ListedIncident]:
    return {row.number: row for row in client.incidents(_MOST_WATCHED, cluster=cluster).items}


def _changes(
    client: FencelineClient,
    before: Mapping[int, shapes.ListedIncident],
    now: Mapping[int, shapes.ListedIncident],
) -> Iterator[tuple[str, shapes.ListedIncident]]:
    """Yield what happened between two polls, by number."""
    for number in sorted({*before, *now}):
        if number not in before:
            yield "opened", now[number]
        elif number not in now:
            if closed := known(client.incident, number):
                yield "closed", closed.value
        elif _watched(before[number]) != _watched(now[number]):
            yield "changed", now[number]


def _watched(row: shapes.ListedIncident) -> Sequence[str]:
    return row.severity, row.summary, row.acknowledged_by


def _say_change(change: str, row: shapes.ListedIncident) -> None:
    words = (row.outcome or row.summary) if change == "closed" else row.summary
    taken = f" (acknowledged by {row.acknowledged_by})" if row.acknowledged_by else ""
    clock, colour = f"{datetime.now(UTC):%H:%M:%S} UTC", {"opened": "red", "closed": "green"}.get(change)
    label = click.style(f"{change:<7}", fg=colour)
    click.echo(
        f"{clock}  {label}  {printable(f'{row.number}  {row.severity}  {row.cluster}  {words}{taken}')}"
    )


def _say_change_json(change: str, row: shapes.ListedIncident) -> None:
    click.echo(json.dumps({"change": change, "incident": asdict(row)}))
