"""`fenceline plan` and `fenceline execute`: preview an action, and confirm it as the page does."""

import time
from contextlib import suppress
from shlex import quote

import click

from fenceline_client import shapes
from fenceline_client.client import ApiRefusal, ClientError, FencelineClient, TypedAnswer
from fenceline_client.terminal import (
    cluster_option,
    is_interactive,
    json_option,
    printable,
    say,
    say_facts,
    say_json,
    time_left,
    warn,
)

_NOT_DONE, _NOT_KNOWN = 1, 2
_POLL_S = 0.5
#: The API's acts, by the words of the command line.
_ACTS = ("fence", "abort-marker", "finish-batch", "roll-back-batch", "commit-flink")


@click.command()
@click.argument("act", type=click.Choice(_ACTS))
@click.argument("subjects", metavar="SUBJECT...", nargs=-1, required=True)
@cluster_option
@click.option("--reason", default="", help="Why; it is put into the command that executes the plan.")
@click.option("--force", is_flag=True, help="Overrule what an administrator may overrule.")
@json_option
@click.pass_context
def plan(
    context: click.Context,
    act: str,
    subjects: tuple[str, ...],
    cluster: str,
    reason: str,
    force: bool,
    as_json: bool,
) -> None:
    """Preview ACT on SUBJECTs: requests, effects and refusals. Nothing is changed.

    SUBJECT is a transactional id (fence, commit-flink), topic-partition or topic-partition@offset
    (abort-marker), QUERY@BATCH (finish-batch, roll-back-batch). Exit status 1: all are refused.
    """
    client: FencelineClient = context.obj.client
    where = cluster or _only_cluster(client)
    answer = client.plan(where, act.replace("-", "_"), subjects, force=force)
    if as_json:
        say_json(answer.raw)
    else:
        _say_plan(client, answer.value)
        if answer.value.executable:
            why = f" --reason {quote(reason)}" if reason else ""
            say_facts([("next", f"fenceline execute {answer.value.id}{why}")])
    context.exit(0 if answer.value.executable else _NOT_DONE)


@click.command()
@click.argument("number", type=click.IntRange(1))
@click.option("--reason", default="", help="Why; it is recorded in the audit log. Asked for at a terminal.")
@click.option(
    "--confirm", default=None, help="The exact text that the plan asks for. Asked for at a terminal."
)
@click.option("--wait", default=60, type=click.IntRange(0, 3_600), show_default=True,
              help="Seconds to wait for the result.")  # fmt: skip
@json_option
@click.pass_context
def execute(
    context: click.Context, number: int, reason: str, confirm: str | None, wait: int, as_json: bool
) -> None:
    """Show plan NUMBER, ask for the typed confirmation, and execute it once.

    Exit status: 0 done, 1 not or partly done, 2 the result is not known.
    """
    client: FencelineClient = context.obj.client
    planned = client.action(number).value
    if not as_json:
        _say_plan(client, planned)
    if not planned.executable:
        raise _NotExecutable(planned)
    may_ask = is_interactive() and not as_json
    typed, why = _confirmation(planned, reason, confirm, may_ask=may_ask)
    ended = _follow(client, _confirmed(client, planned, typed, why), wait)
    if as_json:
        say_json(ended.raw)
    else:
        _say_result(client, ended.value)
    context.exit(_status_of(ended.value))


class _NotExecutable(ClientError):
    """A plan that is refused, expired, or was executed before."""

    def __init__(self, planned: shapes.PlannedAction) -> None:
        done = f"is {planned.state} already, by {planned.executed_by}"
        why = "is refused or has expired" if planned.state == "planned" else done
        super().__init__(f"Plan {planned.id} {why}. Nothing was sent; make a new plan: fenceline plan")


def _only_cluster(client: FencelineClient) -> str:
    names = client.cluster_names()
    if len(names) != 1:
        raise ClientError(f"Name the cluster by --cluster. Known are: {', '.join(names) or 'none'}.")
    return names[0]


def _say_plan(client: FencelineClient, planned: shapes.PlannedAction) -> None:
    say(f"Plan {planned.id}: {planned.act} on {planned.cluster}, {planned.state}")
    say_facts([
        ("page", client.page_url("actions", planned.id)),
        ("digest", planned.digest),
        ("expires", f"in {time_left(planned.expires_at)}" if planned.executable else ""),
        *(("warning", warning) for warning in planned.warnings),
        *(("forced", f"although: {refusal.words}") for refusal in planned.overridden),
    ])  # fmt: skip
    for subject in planned.subjects:
        say(subject.title)
        say_facts([
            *(("sends", f"{step.request}: {step.words}") for step in subject.steps),
            *(("effect", effect.words) for effect in subject.effects),
            *(("refused", refusal.words) for refusal in subject.refusals),
        ])  # fmt: skip


def _confirmation(
    planned: shapes.PlannedAction, reason: str, confirm: str | None, *, may_ask: bool
) -> tuple[str, str]:
    """Return the typed text and the reason of a person, or of a script that was given both."""
    if not may_ask and (confirm is None or not reason):
        raise ClientError(
            "Nobody can be asked without a terminal or with --json, so nothing was sent. Give --reason, and "
            f"--confirm with the exact text that plan {planned.id} asks for."
        )
    why = reason or click.prompt("Reason (recorded in the audit log)", err=True)
    text = f"Type {printable(planned.confirm)}"
    typed = click.prompt(text, "", show_default=False, err=True) if confirm is None else confirm
    if typed != planned.confirm:
        raise ClientError(f"The text is not {planned.confirm}: nothing was sent. Type exactly that.")
    return typed, why


def _confirmed(
    client: FencelineClient, planned: shapes.PlannedAction, typed: str, reason: str
) -> TypedAnswer[shapes.PlannedAction]:
    """Have a plan executed; without an answer say that a repetition is harmless."""
    try:
        return client.execute(planned.id, digest=planned.digest, typed=typed, reason=reason)
    except ApiRefusal:
        raise
    except ClientError as error:
        raise ClientError(
            f"{error} Whether plan {planned.id} is executed is not known. Repeat the command: a plan is "
            "executed only once."
        ) from error


def _follow(
    client: FencelineClient, answer: TypedAnswer[shapes.PlannedAction], wait_s: float
) -> TypedAnswer[shapes.PlannedAction]:
    """Poll an action until it ends, or the time is over; a poll without an answer is repeated."""
    end = time.monotonic() + wait_s
    while answer.value.state == "executing" and time.monotonic() < end:
        time.sleep(_POLL_S)
        with suppress(ClientError):
            answer = client.action(answer.value.id)
    return answer


def _say_result(client: FencelineClient, action: shapes.PlannedAction) -> None:
    for subject in action.subjects:
        if subject.result:
            say(f"{subject.title}: {subject.result.outcome}: {subject.result.words}")
    if action.state == "executing":
        warn(f"A worker still executes it. See {client.page_url('actions', action.id)}")
    else:
        say(f"Action {action.id}: {action.state}")


def _status_of(action: shapes.PlannedAction) -> int:
    if action.state in ("executing", "unknown"):
        return _NOT_KNOWN
    return 0 if action.state == "done" else _NOT_DONE
