"""`fenceline why`: one thing of a cluster with its headline, what it blocks, its incident and next step."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import click

from fenceline_client import shapes
from fenceline_client.client import ApiRefusal, FencelineClient, TypedAnswer, addressed, candidates_of, known
from fenceline_client.terminal import (
    age,
    cluster_option,
    json_option,
    say,
    say_facts,
    say_json,
    shown,
    warn,
)

_NOT_FOUND = 1
#: Open incidents whose effects are searched, and names that are suggested.
_MOST_INCIDENTS, _MOST_SUGGESTED = 50, 5
_LONGEST_SEARCH = 200
_PARTITION = re.compile(r"(.+)-(\d{1,9})", re.DOTALL)
_INCIDENT = re.compile(r"#?(\d{1,18})")
_MOST_NAMED = 5
_Blocker = shapes.BlockingId | shapes.OpenInPartition


@dataclass(frozen=True, slots=True)
class NamedThing:
    """Something that has the name that was asked for; `facts` are labelled lines about it."""

    kind: str
    cluster: str
    name: str
    state: str
    facts: Sequence[tuple[str, str]]
    page: str
    #: As incidents and findings name it, and what blocks it.
    subjects: tuple[str, ...]
    raw: Any


@click.command()
@click.argument("name", metavar="ID")
@cluster_option
@json_option
@click.pass_context
def why(context: click.Context, name: str, cluster: str, as_json: bool) -> None:
    """Explain ID: what it blocks, what blocks it, its open incident, and the next step.

    ID is a transactional id, a group, a query, a partition such as payments-0, or the number of an incident.
    Exit status 1: nothing has this name.
    """
    client: FencelineClient = context.obj.client
    names = client.cluster_names(cluster)
    explained = [(thing, _incident_about(client, thing)) for thing in _things(client, name, names)]
    if as_json:
        say_json([_document(thing, incident) for thing, incident in explained])
    elif not explained:
        warn(_nothing_named(client, name, cluster))
    else:
        for thing, incident in explained:
            _say_thing(client, thing, incident)
    context.exit(0 if explained else _NOT_FOUND)


def _things(client: FencelineClient, name: str, clusters: Sequence[str]) -> Iterator[NamedThing]:
    """Yield everything that has a name, in each of some clusters."""
    if match := _INCIDENT.fullmatch(name):
        incident = known(client.incident, int(match[1]))
        if incident is not None and incident.value.cluster in clusters:
            yield _incident_thing(client, incident)
    for cluster in clusters:
        if transaction := known(client.transaction, cluster, name):
            yield _transaction_thing(client, transaction)
        if group := known(client.group, cluster, name):
            yield _group_thing(client, group)
        yield from (_query_thing(client, query) for query in _queries_named(client, cluster, name))
        place = _PARTITION.fullmatch(name)
        if place and (partition := known(client.partition, cluster, place[1], int(place[2]))):
            yield _partition_thing(client, partition)


def _queries_named(
    client: FencelineClient, cluster: str, name: str
) -> Iterator[TypedAnswer[shapes.FullQuery]]:
    """Yield the queries of a name: a cluster may have several."""
    try:
        if query := known(client.query, name, cluster):
            yield query
    except ApiRefusal as refusal:
        candidates = candidates_of(refusal.members)
        if not candidates:
            raise
        yield from (client.query(str(candidate["id"]), cluster) for candidate in candidates)


def _incident_thing(client: FencelineClient, answer: TypedAnswer[shapes.FullIncident]) -> NamedThing:
    row = answer.value
    effects = _listed([effect.subject for effect in row.effects])
    facts = [("headline", row.summary), ("blocks", effects), ("outcome", row.outcome)]
    page, state = client.page_url("incidents", row.number), f"{row.severity}, {row.state}"
    return NamedThing(
        "incident", row.cluster, str(row.number), state, facts, page, (row.subject,), answer.raw
    )


def _transaction_thing(client: FencelineClient, answer: TypedAnswer[shapes.FullTransaction]) -> NamedThing:
    row = answer.value
    state = f"{row.state}, verdict {row.verdict}"
    if row.partitions and row.started_at:
        state += f", begun {age(row.started_at)} ago"
    waiting = {f"group {wait.group}" if wait.group else f"query {wait.query}" for wait in row.waiting}
    facts = [
        ("open in", _listed([str(place) for place in row.partitions])),
        ("blocks", _listed(sorted(waiting))),
        *(("action", _plan_command(offer, row.cluster)) for offer in row.offers),
    ]
    name = row.transactional_id
    page = client.page_url("transactions", row.cluster, addressed(name))
    return NamedThing(
        "transaction", row.cluster, name, state, facts, page, (f"transaction:{name}",), answer.raw
    )


def _group_thing(client: FencelineClient, answer: TypedAnswer[shapes.FullGroup]) -> NamedThing:
    row = answer.value
    blockers = [(part, blocker) for part in row.offsets for blocker in part.blockers]
    places = [f"{_producer(blocker)} at {part}" for part, blocker in blockers]
    facts = [
        ("lag", f"{shown(row.lag_lso)} to the LSO, {shown(row.lag_hw)} to the high watermark"),
        ("blocked by", _listed(places)),
    ]
    page, state = client.page_url("groups", row.cluster, addressed(row.group)), f"{row.status}, {row.state}"
    subjects = (f"group:{row.group}", *_transactions(blocker for _, blocker in blockers))
    return NamedThing("group", row.cluster, row.group, state, facts, page, subjects, answer.raw)


def _query_thing(client: FencelineClient, answer: TypedAnswer[shapes.FullQuery]) -> NamedThing:
    row = answer.value
    facts = [
        ("batch", "" if row.newest is None else f"{row.newest:,}; {row.prepared:,} prepared"),
        ("restart", f"a restart {row.restart_words}" if row.restart_words else ""),
        ("prepared", row.safe.headline),
        ("stop", row.safe.verdict),
        *(("reason", reason) for reason in row.safe.reasons),
    ]
    page = client.page_url("queries", row.cluster, row.id)
    return NamedThing(
        "query", row.cluster, row.name or row.id, row.state, facts, page, (f"query:{row.id}",), answer.raw
    )


def _partition_thing(client: FencelineClient, answer: TypedAnswer[shapes.FullPartition]) -> NamedThing:
    row = answer.value
    state = f"verdict {row.verdict}"
    if row.pinned_since:
        state += f", LSO stuck for {age(row.pinned_since)}"
    readers = [f"group {reader.group}" for reader in row.readers if reader.waiting == "probably"]
    facts = [
        ("backlog", f"up to {row.held:,} records" if row.held else ""),
        ("blocked by", _listed([_producer(blocker) for blocker in row.transactions])),
        ("blocks", _listed(readers)),
    ]
    page, name = client.page_url("partitions", row.cluster, row.topic, row.partition), str(row)
    subjects = (f"partition:{name}", *_transactions(row.transactions))
    return NamedThing("partition", row.cluster, name, state, facts, page, subjects, answer.raw)


def _producer(blocker: _Blocker) -> str:
    return blocker.transactional_id or f"producer {blocker.producer_id}"


def _transactions(blockers: Iterable[_Blocker]) -> Iterator[str]:
    """Yield the subjects of transactions whose ids are known."""
    return (f"transaction:{blocker.transactional_id}" for blocker in blockers if blocker.transactional_id)


def _plan_command(offer: shapes.OfferedAct, cluster: str) -> str:
    act = offer.act.replace("_", "-")
    return f"fenceline plan {act} {quote(offer.subject)} --cluster {quote(cluster)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _incident_about(client: FencelineClient, thing: NamedThing) -> TypedAnswer[shapes.FullIncident] | None:
    """Return the open incident of a thing or of what blocks it, else one that it is an effect of."""
    if thing.kind == "incident":
        return client.incident(int(thing.name))
    rows = client.incidents(_MOST_INCIDENTS, cluster=thing.cluster).items
    for row in sorted(rows, key=lambda row: row.subject not in thing.subjects):
        incident = known(client.incident, row.number)
        if incident is None:
            continue
        effects = {effect.subject for effect in incident.value.effects}
        if incident.value.subject in thing.subjects or thing.subjects[0] in effects:
            return incident
    return None


def _say_thing(
    client: FencelineClient, thing: NamedThing, incident: TypedAnswer[shapes.FullIncident] | None
) -> None:
    say(f"{thing.kind} {thing.name} on {thing.cluster}: {thing.state}")
    row = incident.value if incident else None
    is_other = row is not None and thing.kind != "incident"
    say_facts([
        *([("headline", row.summary)] if row and is_other else []),
        *thing.facts,
        *([("incident", _incident_line(client, row))] if row and is_other else []),
        ("next step", _next_step(client, thing, row)),
        ("page", thing.page),
    ])  # fmt: skip


def _incident_line(client: FencelineClient, row: shapes.FullIncident) -> str:
    taken = f"acknowledged by {row.acknowledged_by}" if row.acknowledged_by else "not acknowledged"
    opened = f"opened {age(row.opened_at)} ago, " if row.opened_at else ""
    return f"{row.number}, {row.severity}, {opened}{taken}: {client.page_url('incidents', row.number)}"


def _next_step(client: FencelineClient, thing: NamedThing, row: shapes.FullIncident | None) -> str:
    """Return what to do about the cause, else about an open finding of the thing."""
    if row is not None:
        causes = [row.cause, *row.effects]
        return next((finding.next_step for finding in causes if finding and finding.next_step), "")
    findings = client.findings(1, cluster=thing.cluster, subject=thing.subjects[0]).items
    return findings[0].next_step if findings else "none: no open finding is about it"


def _document(thing: NamedThing, incident: TypedAnswer[shapes.FullIncident] | None) -> Mapping[str, Any]:
    return {
        "kind": thing.kind,
        "cluster": thing.cluster,
        "name": thing.name,
        "answer": thing.raw,
        "incident": incident.raw if incident else None,
    }


def _nothing_named(client: FencelineClient, name: str, cluster: str) -> str:
    """Return that nothing has a name, with names that it is a part of."""
    asked = {"cluster": cluster, "q": name[:_LONGEST_SEARCH]}
    names = {
        *(row.transactional_id for row in client.transactions(_MOST_SUGGESTED, **asked).items),
        *(row.group for row in client.groups(_MOST_SUGGESTED, **asked).items),
        *(row.name for row in client.queries(_MOST_SUGGESTED, **asked).items),
        *(str(row) for row in client.partitions(_MOST_SUGGESTED, **asked).items),
    }
    where = f" on cluster {cluster}" if cluster else ""
    hint = f" Similar: {', '.join(sorted(names)[:_MOST_SUGGESTED])}." if names else " Check its spelling."
    return f"Nothing{where} is named '{name}'.{hint}"
