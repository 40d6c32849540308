"""The command `fenceline` and its commands that list and check. Exit status 2: there is no answer."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any

import click

from fenceline_client import shapes
from fenceline_client.acts import execute, plan
from fenceline_client.client import ClientError, FencelineClient, TypedAnswer
from fenceline_client.main import NO_ANSWER
from fenceline_client.profiles import ServerAccess, checked_token, checked_url, save_profile
from fenceline_client.terminal import (
    CommandLine,
    age,
    cluster_option,
    json_option,
    raw_of,
    say,
    say_facts,
    say_json,
    say_list,
    warn,
)
from fenceline_client.watch import watch
from fenceline_client.why import why

#: The exit status of a program that Ctrl-C ended.
_INTERRUPTED = 130
_NOT_OK = 1
#: How a capability's state counts for the doctor.
_DIAGNOSES = {"works": "ok", "limited": "warn", "missing": "FAIL", "unknown": "skip"}
_FAILING = {"critical": ("critical",), "warning": ("critical", "warning")}


@click.group(
    no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--url", envvar="FENCELINE_URL", default="", help="The Fenceline to ask; else the last login's."
)
@click.option("--insecure-http", is_flag=True, envvar="FENCELINE_INSECURE_HTTP",
              help="Send the token over http:// to another host.")  # fmt: skip
@click.pass_context
def command(context: click.Context, url: str, insecure_http: bool) -> None:
    """Ask a Fenceline about exactly-once between Kafka and Spark.

    Exit status: 0 yes or done, 1 no, 2 no answer or wrong usage, 130 interrupted.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
    context.obj = CommandLine(url, insecure_http)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; each error is one line on stderr."""
    _escape_unencodable()
    try:
        return int(command.main(arguments, "fenceline", standalone_mode=False) or 0)
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except ClientError as error:
        warn(str(error))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "fenceline"
        warn(f"{error.format_message()} See: {path} --help")
    except click.ClickException as error:
        warn(error.format_message())
    except Exception as error:
        warn(f"An error of this program, please report it: {type(error).__name__}: {error}")
    return NO_ANSWER


def _escape_unencodable() -> None:
    """Let a terminal without UTF-8 show escapes where it lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


@command.command()
def version() -> None:
    """Print the version of this command."""
    try:
        say(metadata.version("fenceline"))
    except metadata.PackageNotFoundError:
        say("not installed: run from a checkout")


@command.command()
@click.argument("url")
@click.option("--token-file", type=click.File(), help="A file with the token; - for stdin.")
@click.pass_obj
def login(line: CommandLine, url: str, token_file: Any) -> None:
    """Check a token at URL and store it for the commands that follow.

    The token comes from --token-file, else FENCELINE_TOKEN, else a hidden prompt. An administrator makes one
    on the page Users and access.
    """
    checked = checked_url(url, insecure_http=line.insecure_http)
    access = ServerAccess(checked, checked_token(_asked_token(token_file)))
    clusters = FencelineClient(access.url, access.token).clusters().items
    path = save_profile(access, insecure_http=line.insecure_http)
    names = ", ".join(cluster.cluster for cluster in clusters) or "none"
    say(f"Logged in to {access.url}; clusters: {names}. The token is stored in {path}.")


def _asked_token(file: Any) -> str:
    if file is not None:
        try:
            return str(file.read())
        except (OSError, ValueError) as error:
            raise ClientError(f"The token file cannot be read: {error}.") from error
    if token := os.environ.get("FENCELINE_TOKEN", ""):
        return token
    if not sys.stdin.isatty():
        raise ClientError("No terminal to ask for the token. Give --token-file or set FENCELINE_TOKEN.")
    return str(click.prompt("Token", hide_input=True))


def _list_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all lists take."""
    most = click.option("--limit", default=50, type=click.IntRange(1, 100_000), show_default=True)
    return cluster_option(most(json_option(click.pass_obj(function))))


@command.command()
@click.option("--state", default="", help="open, closed or all; open without it.")
@click.option("--severity", default="", help="critical, warning or info.")
@_list_options
def incidents(line: CommandLine, limit: int, as_json: bool, **criteria: str) -> None:
    """List open incidents, the newest first."""
    answer = line.client.incidents(limit, **criteria)
    rows = (
        (row.number, row.severity, row.state, row.cluster, age(row.opened_at), row.impact.groups,
         row.acknowledged_by, row.summary)
        for row in answer.items
    )  # fmt: skip
    headings = ("incident ", "severity", "state", "cluster", "age ", "groups ", "acknowledged", "summary")
    say_json(answer.raw) if as_json else say_list(answer, headings, rows)


@command.command()
@click.option("--state", default="", help="open, or Kafka's word: Ongoing, PrepareCommit, …")
@click.option("--app", default="", help="Only the ids of this application.")
@click.option("--search", "q", default="", help="A part of the id.")
@_list_options
def transactions(line: CommandLine, limit: int, as_json: bool, **criteria: str) -> None:
    """List transactional ids."""
    answer = line.client.transactions(limit, **criteria)
    rows = (
        (row.cluster, row.transactional_id, row.state, row.verdict, age(row.started_at), len(row.partitions),
         len(row.waiting))
        for row in answer.items
    )  # fmt: skip
    headings = ("cluster", "transactional id", "state", "verdict", "begun ", "partitions ", "waiting ")
    say_json(answer.raw) if as_json else say_list(answer, headings, rows)


@command.command()
@click.option("--status", default="", help="BLOCKED, STOP, STALL, REWIND, WARN, OK, …")
@click.option("--search", "q", default="", help="A part of the group's id.")
@_list_options
def groups(line: CommandLine, limit: int, as_json: bool, **criteria: str) -> None:
    """List consumer groups."""
    answer = line.client.groups(limit, **criteria)
    rows = (
        (row.cluster, row.group, row.status, row.state, row.members, row.lag_lso, row.lag_hw, row.blocked)
        for row in answer.items
    )
    headings = ("cluster", "group", "status", "state", "members ", "lag to LSO ", "lag ", "blocked ")
    say_json(answer.raw) if as_json else say_list(answer, headings, rows)


@command.command()
@click.option("--state", default="", help="prepared, failed, unheard, stopped, running or idle.")
@click.option("--search", "q", default="", help="A part of its name, id or checkpoint.")
@_list_options
def queries(line: CommandLine, limit: int, as_json: bool, **criteria: str) -> None:
    """List Spark's streaming queries."""
    answer = line.client.queries(limit, **criteria)
    rows = (
        (row.cluster, row.name or row.id, row.state, row.sink, row.newest, row.prepared, row.lag_lso,
         row.safe_to_stop)
        for row in answer.items
    )  # fmt: skip
    headings = ("cluster", "query", "state", "sink", "batch ", "prepared ", "lag to LSO ", "safe to stop")
    say_json(answer.raw) if as_json else say_list(answer, headings, rows)


@command.command("safe-to-stop")
@click.argument("query", default="")
@cluster_option
@json_option
@click.pass_context
def safe_to_stop(context: click.Context, query: str, cluster: str, as_json: bool) -> None:
    """Is QUERY safe to stop now, or with --cluster alone all queries of a cluster?

    Exit status: 0 safe, 1 not safe, 2 not known.
    """
    if not (query or cluster):
        raise click.UsageError("Name a query, or a cluster by --cluster.", context)
    client = context.obj.client
    answer = client.query_safety(query, cluster) if query else client.cluster_safety(cluster)
    say_json(answer.raw) if as_json else _say_safety(answer.value)
    context.exit({True: 0, False: _NOT_OK, None: NO_ANSWER}[answer.value.safe])


def _say_safety(safety: shapes.StopSafety) -> None:
    say(safety.verdict)
    retry = "" if safety.retry_after_s is None else f"in {safety.retry_after_s} s"
    kill = "its driver may be killed at any moment" if safety.kill else safety.kill_reason
    reasons = (("reason", reason) for reason in safety.reasons)
    say_facts([("prepared", safety.headline), *reasons, ("kill", kill), ("ask again", retry)])


@command.command()
@cluster_option
@json_option
@click.pass_context
def doctor(context: click.Context, cluster: str, as_json: bool) -> None:
    """Check the connection, the collectors, and what each cluster lets Fenceline do.

    Exit status 1: something fails. `manage.py doctor` on the server checks more.
    """
    client: FencelineClient = context.obj.client
    names = client.cluster_names(cluster)
    collectors = client.collectors()
    reports = [client.capabilities(name) for name in names]
    rows = [("ok", "connection", client.url, "the API answers, the token is accepted")]
    rows += _collector_checks(collectors.items, names)
    rows += [check for report in reports for check in _capability_checks(report.value)]
    if as_json:
        say_json({"collectors": collectors.raw["items"], "capabilities": raw_of(reports)})
    else:
        say_list(collectors, ("state", "part", "name", "detail"), rows)
    context.exit(_NOT_OK if any(status == "FAIL" for status, *_ in rows) else 0)


_Check = tuple[str, str, str, str]


def _collector_checks(rows: Iterable[shapes.ListedCollector], clusters: Sequence[str]) -> list[_Check]:
    return [
        ("ok" if row.alive else "FAIL", row.cluster, f"collector {row.name}",
         row.error or ("polls" if row.alive else "no process runs it: check the workers"))
        for row in rows
        if row.cluster in clusters
    ]  # fmt: skip


def _capability_checks(report: shapes.CapabilityReport) -> list[_Check]:
    trouble = [("FAIL", report.cluster, "capabilities", report.trouble)] if report.trouble else []
    if report.asked_at is None and not trouble:
        return [("skip", report.cluster, "capabilities", "not checked yet")]
    return trouble + [
        (_DIAGNOSES.get(item.state, "skip"), report.cluster, item.words, " ".join((item.why, *item.remedies)))
        for item in report.items
    ]


@command.command()
@cluster_option
@click.option("--fail-on", type=click.Choice(sorted(_FAILING)), default="critical", show_default=True,
              help="The severity that exit status 1 is for.")  # fmt: skip
@json_option
@click.pass_context
def check(context: click.Context, cluster: str, fail_on: str, as_json: bool) -> None:
    """Find settings that threaten exactly-once (pre-flight).

    Exit status 1: a risk is as severe as --fail-on.
    """
    client: FencelineClient = context.obj.client
    reports = [client.preflight(name) for name in client.cluster_names(cluster)]
    if as_json:
        say_json(raw_of(reports))
    else:
        for report in reports:
            _say_preflight(report)
    severities = {risk.severity for report in reports for risk in report.value.risks}
    context.exit(_NOT_OK if severities & {*_FAILING[fail_on]} else 0)


def _say_preflight(answer: TypedAnswer[shapes.PreflightReport]) -> None:
    report = answer.value
    examined = ", ".join(f"{count:,} {noun}" for noun, count in report.examined.items())
    say(f"{report.cluster}: {len(report.risks)} risks; examined: {examined or 'nothing'}")
    for risk in report.risks:
        say(f"{risk.severity}: {risk.subject}: {risk.fact}")
        say_facts([("risk", risk.risk), ("remedy", risk.remedy), ("source", risk.source)])
    for reason in report.unseen:
        say(f"not examined: {reason}")


for _shared in (why, watch, plan, execute):
    command.add_command(_shared)
