"""Reads pages and API of a stack each second while something happens there, and compares what they show: with
each other, and later with the same pages of that past."""

import html
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from fenceline.history.time_range import format_instant
from fenceline.text import Age, plain_text
from tests import databases
from tests.deployment import Stack
from tests.waiting import wait_for

_EVERY_S, _DEADLINE_S = 1.0, 120
#: Cards follow the evaluation: what changed in one reading is on them in the one but next.
_CARDS_FOLLOW = 2
_AGE = re.compile(r'<time [^>]*data-age="[^"]*" title="([\d-]+ [\d:.]+) UTC">')
_CARD = re.compile(r'<li\s+class="incident edge-(\w+)".*?(?=<li\s+class="incident edge-|\Z)', re.DOTALL)
_ROW = re.compile(r'<tr id="incident-(\d+)">(.*?)</tr>', re.DOTALL)
_TITLE = re.compile(r"<a [^>]*data-row>(.*?)</a>", re.DOTALL)
_FIGURE = re.compile(r"<dt>([^<]+)</dt>\s*<dd>([\d,]+)</dd>")
_BLOCKED = "partitions blocked"
_EVALUATED = """SELECT seen_through_ms FROM dashboard_collector JOIN dashboard_cluster
ON cluster_id = dashboard_cluster.id WHERE dashboard_collector.name = 'judge'
AND dashboard_cluster.name = '{cluster}'"""


class Incident(NamedTuple):
    """An open incident as a home page shows it; the title is HTML, without the ages that go on."""

    severity: str
    title: str
    figures: Mapping[str, int]

    def as_of(self, at_ms: int) -> tuple[str, str, Mapping[str, int]]:
        """Return it as text whose ages are those of an instant."""
        return self.severity, _text(self.title, at_ms), self.figures


class Reading(NamedTuple):
    """What is shown at one instant, before and after which the API counts alike."""

    #: Just after the evaluation that incidents are of; None where another one was saved meanwhile.
    at_ms: int | None
    #: How many partitions are blocked, by who says so.
    counts: Mapping[str, int]
    #: The open incidents by number: of the home page and of the API.
    shown: Mapping[int, tuple[Incident, Mapping[str, Any]]]
    #: The partitions that the API calls blocked.
    blocked: frozenset[str] = frozenset()
    #: Which reading it is; one during which something changed is left out, and its number with it.
    number: int = 0

    @property
    def on_cards(self) -> int:
        """Return how many partitions the incidents' cards call blocked."""
        return sum(incident.figures.get(_BLOCKED, 0) for incident, _ in self.shown.values())


class WatchedPages:
    """The pages about one cluster, read until this ends."""

    def __init__(self, stack: Stack, cluster: str) -> None:
        self._stack, self._cluster, self._over = stack, cluster, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self.readings: list[Reading] = []

    def __enter__(self) -> Self:
        self._stack.page("/")
        self._stack.api("incidents")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def wait_until_shown(self, number: int) -> None:
        """Wait for another reading of one evaluation that has at least so many open incidents."""
        start = len(self.readings)

        def is_shown() -> bool:
            later = self.readings[start:]
            return self._error is not None or any(
                row.at_ms is not None and len(row.shown) >= number for row in later
            )

        wait_for(is_shown, f"a reading with {number} incidents", _DEADLINE_S)

    def blocked(self) -> set[str]:
        """Return the partitions that the API calls blocked."""
        return {f"{row['topic']}-{row['partition']}" for row in self._rows("partitions", verdict="blocked")}

    def held(self) -> set[str]:
        """Return the partitions that open findings are about or affect."""
        subjects = {name for row in self._rows("findings") for name in (row["subject"], *row["affected"])}
        return {name.removeprefix("partition:") for name in subjects}

    def check(self) -> str:
        """Check that pages agreed in each second, and show each of them later as it was; return figures."""
        assert self._error is None, self._error
        most, compared = self._check_counts(), self._check_past()
        assert min(most, compared) >= 2, (most, compared)
        return f"{len(self.readings)} readings, {most} partitions at most, {compared} incidents of the past"

    def _check_counts(self) -> int:
        """Check that all show one number of blocked partitions; return the largest."""
        for number, reading in enumerate(self.readings):
            assert len(set(reading.counts.values())) == 1, reading
            lately = self.readings[max(0, number - _CARDS_FOLLOW) : number + 1]
            if lately[-1].number - lately[0].number >= len(lately):
                continue  # What a reading that was left out would have counted is not known.
            # One may end while another begins: then both readings count alike, and name others.
            always = frozenset.intersection(*(row.blocked for row in lately))
            ever = frozenset.union(*(row.blocked for row in lately))
            assert len(always) <= reading.on_cards <= len(ever), lately
        return max(max(reading.counts.values()) for reading in self.readings)

    def _check_past(self) -> int:
        """Compare each incident with what the page and the API of that past show; return how many were."""
        compared = 0
        for reading in self.readings:
            if (at_ms := reading.at_ms) is not None:
                then = {number: (row.as_of(at_ms), item) for number, (row, item) in reading.shown.items()}
                items = self._items(at_ms)
                later = {number: (row, items[number]) for number, row in self._home_of(at_ms).items()}
                assert later == then, f"{at_ms}\n{later}\n{then}"
                compared += len(then)
        return compared

    def _run(self) -> None:
        try:
            for number in count():
                if self._over.wait(_EVERY_S):
                    return
                if (reading := self._read()) is not None:
                    self.readings.append(reading._replace(number=number))
        except Exception as error:
            # The test raises it.
            self._error = error

    def _read(self) -> Reading | None:
        """Read all; None where the API differs before and after, or an incident comes or goes."""
        before, evaluated_ms = self.blocked(), self._evaluated_ms()
        home, items = self._page("/"), self._items()
        at_ms = evaluated_ms + 1 if self._evaluated_ms() == evaluated_ms else None
        listed = self._page("/partitions", verdict="blocked")
        cards = dict(_cards(home))
        if self.blocked() != before or cards.keys() != items.keys():
            return None
        counts = {
            "API": len(before),
            "home": _number(r"<li>([\d,]+) partitions? blocked</li>", home),
            "sidebar": _number(r'data-blocked="(\d+)"', home),
            "sidebar of the list": _number(r'data-blocked="(\d+)"', listed),
            "list": len(re.findall(r'<tr id="p-', listed)),
        }
        shown = {number: (cards[number], items[number]) for number in cards}
        return Reading(at_ms, counts, shown, frozenset(before))

    def _page(self, path: str, **parameters: str) -> str:
        return self._stack.page(f"{path}?{urlencode({'cluster': self._cluster, **parameters})}")

    def _evaluated_ms(self) -> int:
        """Return the instant of the newest evaluation that was saved."""
        with databases.reading(self._stack.described()["database"]) as cursor:
            cursor.execute(_EVALUATED.format(cluster=self._cluster))
            return int(cursor.fetchone()[0])

    def _rows(self, noun: str, **parameters: str) -> Sequence[Mapping[str, Any]]:
        query = urlencode({"cluster": self._cluster, **parameters})
        rows: Sequence[Mapping[str, Any]] = self._stack.api(f"{noun}?{query}")["items"]
        return rows

    def _items(self, at_ms: int | None = None) -> Mapping[int, Mapping[str, Any]]:
        """Return the incidents of the API that are open, or were at an instant."""
        rows = self._rows("incidents", **({} if at_ms is None else {"state": "all", **_until(at_ms)}))
        return {row["number"]: row for row in rows if row["state"] == "open"}

    def _home_of(self, at_ms: int) -> Mapping[int, tuple[str, str, Mapping[str, int]]]:
        """Return what the home page of a range that ended at an instant shows of those open then."""
        return {number: incident.as_of(at_ms) for number, incident in _rows(self._page("/", **_until(at_ms)))}


def _until(at_ms: int) -> Mapping[str, str]:
    return {"from": format_instant(at_ms - 1_000), "to": format_instant(at_ms)}


def _cards(page: str) -> Iterator[tuple[int, Incident]]:
    for card in _CARD.finditer(page.partition('id="needs-you"')[2].partition("</section>")[0]):
        if number := _number(r'data-incident="(\d+)"', card[0]):
            impact = card[0].partition("data-impact>")[2].partition("</dl>")[0]
            figures = {words: int(count.replace(",", "")) for words, count in _FIGURE.findall(impact)}
            yield number, Incident(card[1], _title(card[0]), figures)


def _rows(page: str) -> Iterator[tuple[int, Incident]]:
    for number, row in _ROW.findall(page):
        if "<b>open</b>" in row:
            severity = re.findall(r'class="badge tone-(\w+)"', row)[0]
            words = _text(row.partition("<br>")[2].partition("</span>")[0], 0)
            figures = [figure.rpartition(" ") for figure in words.split(" · ") if figure]
            known = {noun: int(count.replace(",", "")) for noun, _, count in figures if count[:1].isdigit()}
            yield int(number), Incident(severity, _title(row), known)


def _title(text: str) -> str:
    return re.sub(r"(data-age=[^>]*>)[^<]*", r"\1", _TITLE.findall(text)[0])


def _text(title: str, at_ms: int) -> str:
    """Return HTML as text, its ages as of an instant."""

    def as_of(found: re.Match[str]) -> str:
        since = datetime.fromisoformat(f"{found[1]}+00:00")
        return plain_text([Age(round(since.timestamp() * 1_000))], now_ms=at_ms)

    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", _AGE.sub(as_of, title))).split())


def _number(pattern: str, page: str) -> int:
    numbers: Sequence[str] = re.findall(pattern, page)
    return int(numbers[0].replace(",", "")) if numbers else 0
