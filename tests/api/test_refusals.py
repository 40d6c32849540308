"""Proves that a wrong request is refused, and never partly used: for each operation, field and parameter of
the API's description one unknown name, one misspelt name, one value that is far too long, and some of other
types. What nobody should send, and ids that nobody should choose, are answered."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, get_args
from urllib.parse import quote

import pytest
from django.test import Client

from dashboard.api.routers.events import NotableKind
from dashboard.models import Channel, Cluster, Transaction, TransitionRecord
from fenceline.decode import text
from fenceline.facts import EVERYDAY, Tombstone, TransactionState, TransitionKind
from tests.api.conftest import Ask, all_items
from tests.api.description import Answer, Operation, operations, resolved, words_of
from tests.cases import cases
from tests.web import factories, roles

pytestmark = pytest.mark.django_db
UNKNOWN = "zzyzx"
FAR_TOO_LONG = "x" * 140_000


@pytest.fixture
def admin(prod: Cluster) -> Client:
    client = roles.client_with_role("admin")
    client.raise_request_exception = False
    return client


EVERY = list(operations())
WITH_BODY = [(each, each.body) for each in EVERY if each.body]


def valid(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a schema."""
    found = resolved(schema)
    for part in found.get("anyOf", ())[:1]:
        return valid(part)
    if "enum" in found:
        return found["enum"][0]
    if found.get("type") == "object":
        return {name: valid(found["properties"][name]) for name in found.get("required", ())}
    return {"string": "prod", "boolean": True, "array": ["prod"]}.get(found["type"], 1)


def misspelt(name: str) -> str:
    return f"{name[:-1]}{'q' if name[-1] != 'q' else 'k'}" if len(name) > 3 else f"{name}{name[-1]}"


def wrong_values(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield values that a parameter of a schema does not take."""
    options = [resolved(option) for option in schema.get("anyOf", [schema])]
    kinds = {option.get("type") for option in options}
    if words_of(schema):
        yield from (UNKNOWN, "open,closed")
    elif kinds & {"integer", "number"}:
        yield from ("many", "nan", "9" * 400)
        (number,) = (option for option in options if option.get("type") != "null")
        if "minimum" in number:
            yield str(number["minimum"] - 1)
            yield str(number.get("maximum", number.get("exclusiveMaximum")) + 1)
    elif any(option.get("format") in ("date", "date-time") for option in options):
        yield from ("yesterday", "2026-13-01", "9" * 40, "nan", "1e300")
    elif "boolean" in kinds:
        yield "perhaps"
    elif any("maxLength" in option for option in options):
        yield "a\0b"


def assert_names(of: Operation, answer: Answer, name: str) -> None:
    status, problem = answer
    assert status == 422, (of, problem)
    assert f".{name}:" in problem["detail"], of


def assert_refused(of: Operation, answer: Answer) -> None:
    assert 400 <= answer[0] < 500, (of, answer)
    assert "x" * 1_000 not in json.dumps(answer[1]), of


def test_there_are_operations() -> None:
    assert len(EVERY) > 50
    assert len(WITH_BODY) == 6
    assert sum(len(each.parameters) for each in EVERY) > 150


def test_an_unknown_parameter_is_refused_by_its_name(admin: Client) -> None:
    for of in EVERY:
        assert_names(of, of.ask(admin, {UNKNOWN: "1"}), UNKNOWN)


def test_an_unknown_field_is_refused_by_its_name(admin: Client) -> None:
    for of, body in WITH_BODY:
        assert body["additionalProperties"] is False
        assert_names(of, of.ask(admin, {}, {**valid(body), UNKNOWN: True}), UNKNOWN)


def test_a_field_of_a_part_of_a_body_is_refused_as_well(admin: Client) -> None:
    sent = {"matchers": [{"label": "team", "value": "a", "operater": "="}], "reason": "a", "duration_s": 60}
    answer = admin.post("/api/v1/silences", sent, "application/json")
    assert answer.status_code == 422
    assert "did you mean 'operator'?" in answer.json()["detail"]


def test_a_body_is_refused_where_none_is_taken(admin: Client) -> None:
    for of in EVERY:
        if of.method != "GET" and not of.body:
            status, problem = of.ask(admin, {}, {"dry_run": True})
            assert (status, problem["detail"].partition(":")[0]) == (422, "body"), of


def test_misspelt_parameters_are_refused_with_the_nearest(admin: Client) -> None:
    for of in EVERY:
        answer = of.ask(admin, {misspelt(name): "1" for name in of.query}) if of.query else None
        for name in of.query:
            assert_names(of, answer, misspelt(name))
            assert f"did you mean '{name}'?" in answer[1]["detail"], of


def test_misspelt_fields_are_refused_with_the_nearest(admin: Client) -> None:
    for of, body in WITH_BODY:
        answer = of.ask(admin, {}, {**valid(body), **{misspelt(name): 1 for name in body["properties"]}})
        for name in body["properties"]:
            assert_names(of, answer, misspelt(name))
            assert f"did you mean '{name}'?" in answer[1]["detail"], of


def test_a_parameter_that_is_far_too_long_is_refused(admin: Client) -> None:
    for of in EVERY:
        for one in of.parameters:
            name, is_text = one["name"], one["schema"].get("type") == "string"
            if one["in"] == "path":
                value = FAR_TOO_LONG if is_text else "9" * 400
                answer = of._replace(path=of.path.replace(f"{{{name}}}", value)).ask(admin, {})
            else:
                answer = of.ask(admin, {name: FAR_TOO_LONG})
            assert_refused(of, answer)
            if one["schema"].get("maxLength"):
                assert_names(of, answer, name)


def test_values_that_parameters_do_not_take_are_refused_by_their_names(admin: Client) -> None:
    for of in EVERY:
        asked: dict[int, dict[str, str]] = defaultdict(dict)
        for one in of.parameters:
            for number, value in enumerate(wrong_values(one["schema"])):
                if one["in"] == "path":
                    address = of.path.replace(f"{{{one['name']}}}", quote(value))
                    answer = of._replace(path=address).ask(admin, {})
                    assert answer[0] in (404, 422), (of, answer)
                else:
                    asked[number][one["name"]] = value
        words = {one["name"]: words_of(one["schema"]) for one in of.parameters}
        for values in asked.values():
            answer = of.ask(admin, values)
            for name in values:
                assert_names(of, answer, name)
                assert all(f"'{word}'" in answer[1]["detail"] for word in words[name]), of


@cases({"from": "2026-11-24T03:00:00Z", "to": "2026-11-24T02:00:00Z"}, {"to": "1969-07-20"})
def test_a_range_that_cannot_be_is_refused_by_its_end(admin: Client, asked: dict[str, str]) -> None:
    ranged = [of for of in EVERY if {"from", "to"} <= set(of.query) and "last" not in of.query]
    assert len(ranged) > 7
    for of in ranged:
        assert_names(of, of.ask(admin, asked), "to")


@pytest.mark.parametrize("asked", [{"from": "yesterday"}, {"to": "2026-11-24"}, {"last": "fortnight"}])
def test_a_range_without_a_length_is_refused_in_words(
    admin: Client, prod: Cluster, asked: dict[str, str]
) -> None:
    """tests/unit/test_times_and_figures.py has all that is wrong with one."""
    factories.partition(prod, "1", 1)
    factories.group(prod, "1")
    ranged = [of for of in EVERY if "last" in of.query and not of.path.endswith("proof")]
    assert len(ranged) > 6
    for of in ranged:
        status, problem = of.ask(admin, asked)
        assert (status, problem["detail"].partition(": ")[0] in ("from", *asked)) == (400, True), of


def test_a_field_that_is_far_too_long_is_refused(admin: Client) -> None:
    for of, body in WITH_BODY:
        for name in body["properties"]:
            for value in FAR_TOO_LONG, [FAR_TOO_LONG], [FAR_TOO_LONG[:10]] * 10_000, int("9" * 400):
                assert_refused(of, of.ask(admin, {}, {**valid(body), name: value}))


@cases(
    ("transactions?application=a", "'app'"),
    ("exports/transactions.json?stat=ongoing", "'state'"),
)
def test_a_misspelt_filter_lists_nothing(ask: Ask, prod: Cluster, path: str, near: str) -> None:
    assert f"did you mean {near}?" in ask(path, 422)["detail"]


def test_every_error_of_a_request_is_named_at_once(ask: Ask, prod: Cluster) -> None:
    detail = ask("transactions?stat=ongoing&limit=0&lmit=3", 422)["detail"]
    assert re.findall(r"query\.(\w+):", detail) == ["stat", "lmit", "limit"]


def test_a_parameter_is_given_once(ask: Ask, prod: Cluster) -> None:
    assert "cluster" in ask("transactions?cluster=prod&cluster=other", 422)["detail"]
    assert "state" in ask("exports/transactions.csv?state=Empty&state=open", 422)["detail"]


@pytest.mark.parametrize("name", ["from", "to"])
def test_a_range_of_a_list_as_of_now_says_where_history_is(ask: Ask, prod: Cluster, name: str) -> None:
    assert "/api/v1/events" in ask(f"partitions?{name}=2026-01-01", 422)["detail"]


CLUSTER_FILTERS = [each.path for each in EVERY if "cluster" in each.query]


@pytest.mark.parametrize("path", [*CLUSTER_FILTERS, "/api/v1/exports/transactions.csv"])
def test_a_cluster_that_is_not_configured_is_not_found(ask: Ask, prod: Cluster, path: str) -> None:
    factories.cluster("gone").delete()
    for name in "nope", "gone":
        wanted = path.replace("{query}", "1").removeprefix("/api/v1/")
        assert ask(f"{wanted}?cluster={name}", 404)["detail"] == f"No cluster '{name}' is configured."


def test_rows_of_a_cluster_that_is_no_longer_configured_are_not_found(ask: Ask, prod: Cluster) -> None:
    factories.transaction(prod, "payments-7")
    factories.partition(prod)
    factories.group(prod)
    recovery, job, of = factories.recovery(prod), factories.flink_job(prod), factories.query(prod)
    finding, incident = factories.finding(prod, "transaction:payments-7"), factories.incident(prod)
    paths = (
        "transactions/prod/payments-7", "partitions/prod/payments/0", "groups/prod/billing",
        f"recoveries/prod/{recovery.pk}", f"flink-jobs/prod/{job.ident}", f"queries/{of.ident}",
        f"findings/{finding.pk}", f"incidents/{incident.pk}", "clusters/prod",
    )  # fmt: skip
    for path in paths:
        ask(path)
    Cluster.objects.update(configured=False)
    for path in paths:
        ask(path, 404)


@pytest.mark.parametrize("number", [2**31, 2**63, 10**30])
def test_a_number_that_no_database_holds_is_not_found(ask: Ask, number: int) -> None:
    for path in ("partitions/prod/payments", "recoveries/prod", "findings", "incidents", "alerts", "actions"):
        ask(f"{path}/{number}", 404)


def test_a_search_takes_200_letters(ask: Ask, prod: Cluster) -> None:
    lists = [each for each in EVERY if "q" in each.query]
    assert len(lists) > 10
    for each in lists:
        path = each.path.removeprefix("/api/v1/")
        if path != "audit":
            ask(f"{path}?q={'x' * 200}")
            assert "200" in ask(f"{path}?q={'x' * 201}", 422)["detail"]


def test_a_channel_is_added_disabled(admin: Client) -> None:
    sent = {"name": "a", "kind": "webhook", "url": "https://hooks.example.org/a", "enabled": False}
    answer = admin.post("/api/v1/channels", sent, "application/json")
    assert answer.status_code == 201, answer.content
    assert answer.json()["enabled"] is False
    assert answer.json()["disabled_why"].startswith("Disabled by ")
    assert not Channel.objects.get(name="a").enabled


def test_a_cursor_of_the_other_order_is_refused(ask: Ask, prod: Cluster) -> None:
    for n in range(3):
        factories.takeover_history(prod, b"taken-%d" % n)
    newest = ask("transitions?limit=1")["next"]
    told = ask("transitions?limit=1&since_rev=0")["next"]
    ask(f"transitions?limit=1&since_rev=0&cursor={newest}", 400)
    ask(f"transitions?limit=1&cursor={told}", 400)


def test_every_notable_kind_can_be_asked_for_and_the_others_are_named_as_unknown(ask: Ask) -> None:
    assert {TransitionKind(kind) for kind in get_args(NotableKind)} == set(TransitionKind) - EVERYDAY
    for kind in get_args(NotableKind):
        ask(f"transitions?kind={kind}")
    for kind in ("commit", "TAKEOVER", "takeover,timeout", "%00"):
        assert "takeover" in ask(f"transitions?kind={kind}", 422)["detail"]


def test_since_rev_needs_a_cluster_where_there_are_several(ask: Ask) -> None:
    assert ask("transitions?since_rev=0")["items"] == []
    factories.cluster("other")
    problem = ask("transitions?since_rev=0", 400)
    assert "other" in problem["detail"]
    assert "prod" in problem["detail"]
    ask("transitions?since_rev=0&cluster=other")
    ask(f"transitions?since_rev={2**63 - 1}&cluster=prod")
    ask(f"transitions?since_rev={2**63}&cluster=prod", 422)


@pytest.mark.sql
@pytest.mark.parametrize("since", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999-14:00", "0", "-1"])
def test_any_instant_can_be_asked_for(ask: Ask, since: str) -> None:
    ask(f"transitions?since={quote(since)}")


@pytest.mark.sql
@pytest.mark.parametrize(
    "raw", [*factories.HOSTILE_IDS, b"c" * 1_000, bytes(range(32)) * 30, b"\x7f\x80", b""]
)
def test_any_id_is_found_by_its_text_and_comes_back_byte_for_byte(
    ask: Ask, prod: Cluster, raw: bytes
) -> None:
    factories.takeover_history(prod, raw)
    written = quote(text.escape_bytes(raw), safe="")
    for path in (f"transitions?transactional_id={written}", "transitions?since_rev=0", "transactions?"):
        items = ask(path)["items"]
        assert {text.unescape_text(item["transactional_id"]) for item in items} == {raw}
    of = quote(items[0]["application"], safe="")
    assert ask(f"transitions?application={of}")["items"]
    assert len(ask(f"transactions?app={of}")["items"]) == 1
    if raw:
        found = ask(f"transactions/prod/{written}")
        assert text.unescape_text(found["transactional_id"]) == raw
        assert "takeover" in {each["kind"] for each in found["recent"]}


def test_what_is_left_of_an_expired_id_are_its_transitions(ask: Ask, prod: Cluster) -> None:
    gone = factories.TransactionHistory("gone-1", random.Random(1))
    gone.old = False
    gone.now_ms = factories.now_ms() - 60_000
    gone.init()
    gone.takeover()
    factories.save_histories(prod, [*gone.written, Tombstone("gone-1", factories.now_ms() - 1_000)])
    assert not Transaction.objects.exists()
    found = ask("transactions/prod/gone-1")
    assert (found["state"], found["application"], found["partitions"]) == ("Dead", "gone", [])
    assert [each["kind"] for each in found["recent"]][:1] == ["expiry"]
    assert found["offers"] == []
    ask("transactions/prod/never-1", 404)
    items = ask("transitions?transactional_id=gone-1")["items"]
    assert items[0]["kind"] == "expiry"
    assert {item["application"] for item in items} == {"gone"}
    assert all(item["evidence"] for item in items)


@pytest.mark.sql
def test_paging_over_equal_instants_loses_and_doubles_nothing(ask: Ask, prod: Cluster) -> None:
    for cluster in (prod, factories.watched_cluster("other")):
        for n in range(4):
            factories.takeover_history(cluster, b"taken-%d" % n)
    TransitionRecord.objects.update(at_ms=1_795_000_000_000)
    every = {(row.cluster.name, row.log_partition, row.log_offset) for row in TransitionRecord.objects.all()}
    for query in ("", "&kind=takeover", "&confidence=probable", "&application=taken"):
        items = all_items(ask, f"transitions?limit=1{query}")
        found = [(item["cluster"], item["partition"], item["offset"]) for item in items]
        assert len(found) == len(set(found)) > 0
        assert query or set(found) == every


@pytest.mark.sql
def test_ids_of_an_application_are_walked_through_whatever_their_length(ask: Ask, prod: Cluster) -> None:
    same = "x" * 250
    for of in (prod, factories.cluster("other")):
        for n in range(5):
            state = TransactionState.EMPTY if n == 4 else TransactionState.ONGOING
            factories.transaction(of, f"{same}-{n}", state, application="long")
        factories.transaction(of, "short-1", application="short")
    for query, wanted in (("", 10), ("&cluster=other", 5), ("&state=Empty", 2), ("&state=open", 8)):
        items = all_items(ask, f"transactions?app=long&limit=2{query}")
        found = [(item["cluster"], item["transactional_id"]) for item in items]
        assert len(found) == len(set(found)) == wanted
        assert found == sorted(found)


@pytest.mark.parametrize("raw", [b"\n", b"a\r\nb", b"\x01\x1f\x7f"])
def test_an_id_with_raw_control_characters_has_an_address(ask: Ask, prod: Cluster, raw: bytes) -> None:
    """Its address may have it as it is, percent-encoded, or escaped as lists name it."""
    factories.takeover_history(prod, raw)
    for written in raw.decode(), text.escape_bytes(raw):
        found = ask(f"transactions/prod/{quote(written, safe='')}")
        assert text.unescape_text(found["transactional_id"]) == raw
