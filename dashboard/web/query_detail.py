"""One streaming query for its page: its chain, batches, sources, checkpoint, ledger and runs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest

from dashboard.evaluation import finding_queries
from dashboard.history.audits import audited_markers
from dashboard.labels import query as query_labels
from dashboard.models import Batch, Query
from dashboard.runtime.criteria import Ranged, page_of
from dashboard.streaming import batches as streaming_batches
from dashboard.streaming import lag
from dashboard.streaming import queries as streaming_queries
from dashboard.streaming.batch_state import chain_of, newest_batch, safe_to_restart
from dashboard.streaming.batches import BatchEntry
from dashboard.streaming.queries import operator_states
from dashboard.streaming.registry import driver_of, state_now
from dashboard.system import owners
from dashboard.web import action_buttons, page_context
from dashboard.web.charts import query_figures
from dashboard.web.charts.series_figures import subject_history
from dashboard.web.forms.lists import chosen_tab, detail_tabs
from dashboard.web.forms.time_ranges import PageRange
from dashboard.web.headlines.detail import DetailHeadline, query_headline
from dashboard.web.page_context import attach_lines
from dashboard.web.per_request import now_ms
from fenceline.formatting import count_noun
from fenceline.history.time_range import TimeRange
from fenceline.spark.batch_chain import first_broken_link, with_markers
from fenceline.spark.state_chains import OperatorState, broken_sentence

#: Maximum batches of the charts, and batches and partitions of a page.
_CHARTED, _BATCHES, _PARTITIONS = 60, 6, 50
_LONGEST_ASKED = 200
#: A prepared batch counts as waiting from this age on, because a healthy one is committed earlier.
_WAITS_FROM_MS = 5_000


def query_context(request: HttpRequest, cluster: str, ident: str) -> Mapping[str, Any]:
    row = streaming_queries.find_query(cluster, ident)
    if row is None:
        return {"row": None, "cluster": cluster, "asked": ident[:_LONGEST_ASKED], "status": 404}
    at_ms = now_ms(request)
    safe, newest = safe_to_restart(row, at_ms), newest_batch(row)
    findings = finding_queries.open_findings(cluster, f"query:{row.ident}")
    chain, sources = _chain(request, row, newest, at_ms), lag.query_sources([row])[row.pk]
    parts, behind = [part for source in sources for part in source.parts], lag.query_lag(sources)
    recent = streaming_batches.recent_batches(row, _CHARTED)
    page = _QueryPage(request, row, newest, recent, sources)
    tabs = {name: words for name, (words, _) in _TABS.items()}
    tab = chosen_tab(request.GET, tabs)
    return {
        "row": row,
        "cluster": cluster,
        "headline": _headline(row, safe.headline, chain, parts, behind, at_ms),
        "safe": safe,
        # The sentence has the first reason already, unless the answer is yes.
        "safe_reasons": safe.reasons if safe.safe else safe.reasons[1:],
        "state": query_labels.state_label(state_now(row, at_ms), driver_of(row, at_ms)),
        "findings": findings,
        "owner": owners.of_query(row),
        **chain,
        "figures": _figures(recent),
        "lag": behind,
        "lost": sum(part.lost_offsets or 0 for part in parts),
        "tabs": detail_tabs(request.GET, tabs),
        "tab_template": f"queries/_{tab}.html",
        **_TABS[tab][1](page),
    }


class _QueryPage(NamedTuple):
    request: HttpRequest
    row: Query
    newest: Batch | None
    recent: Sequence[Batch]
    sources: Sequence[lag.Source]


def _headline(
    row: Query,
    prepared: str,
    chain: Mapping[str, Any],
    parts: Sequence[lag.PartitionLag],
    behind: lag.QueryLag,
    at_ms: int,
) -> DetailHeadline:
    entry = chain["entry"]
    return query_headline(
        row,
        driver_of(row, at_ms),
        prepared=prepared,
        links=chain["links"],
        batch_id=entry.batch.batch_id if entry else None,
        parts=parts,
        lag=behind,
    )


def _chain(request: HttpRequest, row: Query, newest: Batch | None, at_ms: int) -> Mapping[str, Any]:
    asked = request.GET.get("batch", "")
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 19 else None
    entry = _entry(row, number, newest)
    links = with_markers(chain_of(row, entry.batch if entry else None, now_ms=at_ms), _markers(row, entry))
    decision = entry.decision if entry else None
    return {
        "asked_batch": number,
        "newest": newest,
        "entry": entry,
        "links": links,
        "broken": first_broken_link(links),
        "batch_offers": action_buttons.of_batch(request, row, entry.batch.batch_id)
        if entry and first_broken_link(links)
        else (),
        "sent": streaming_batches.sent_transactions(row, decision),
        "expires_ms": _expires_ms(entry, at_ms),
    }


def _markers(row: Query, entry: BatchEntry | None) -> Mapping[str, int]:
    url = settings.FENCELINE.audit_url
    return audited_markers(url, row.cluster.name, row.query_id, entry.batch.batch_id) if url and entry else {}


def _entry(row: Query, number: int | None, newest: Batch | None) -> BatchEntry | None:
    wanted = number if number is not None else newest.batch_id if newest else None
    return None if wanted is None else streaming_batches.find_entry(row, wanted)


def _expires_ms(entry: BatchEntry | None, at_ms: int) -> int | None:
    """Return when the first transaction of a batch times out, None unless the batch is prepared and waits."""
    decision = entry.decision if entry else None
    if decision is None or decision.outcome or decision.decided != "prepared":
        return None
    if at_ms < decision.decided_ms + _WAITS_FROM_MS:
        return None
    return min(
        (transaction["started_ms"] + transaction["timeout_ms"] for transaction in decision.transactions),
        default=None,
    )


def _batches(page: _QueryPage) -> Mapping[str, Any]:
    asked = page_context.chrome_of(page.request).time_range
    wanted = Ranged.between(asked.start_ms, asked.end_ms)
    number = page.request.GET.get("page")
    return {"page": streaming_batches.batch_page(page.row, wanted, page=number, size=_BATCHES)}


def _charts(page: _QueryPage) -> Mapping[str, Any]:
    """Return the charts of batches that a listener reported, and their figures."""
    row, asked = page.row, page_context.chrome_of(page.request).time_range
    lately, words, within = _charted(asked, row, page.recent)
    phases = query_figures.phases_of(lately)
    has_durations = bool(lately) and any(batch.durations for batch in lately)
    written = {
        entry.batch.batch_id: entry.output_rows for entry in streaming_batches.batch_entries(row, lately)
    }
    return {
        "listened": bool(page.recent),
        "lately": lately,
        "lately_words": words,
        "durations": query_figures.duration_figure(lately, within) if has_durations else None,
        "durations_words": _durations_words(lately),
        "rows_chart": query_figures.row_figure(lately, written, within) if lately else None,
        "rows_words": _rows_words(lately),
        "row_counts": [(batch, written.get(batch.batch_id)) for batch in reversed(lately)],
        "phases": phases,
        "phase_rows": [
            (batch, [query_figures.phase_ms(batch, phase) for phase in phases]) for batch in reversed(lately)
        ],
    }


def _charted(
    asked: PageRange, row: Query, recent: Sequence[Batch]
) -> tuple[Sequence[Batch], str, TimeRange | None]:
    """Return the batches of the page's range, in words, and the range; on a Live page, the last reported ones
    and None.
    """
    if asked.is_live:
        return recent, f"last {len(recent)} reported batches", None
    shown = asked.window()
    slowest = streaming_batches.slowest_batches([row], shown.from_ms, shown.to_ms, most=_CHARTED)
    if slowest.is_whole:
        words = count_noun(slowest.number, "batch")
        return slowest.batches, words, shown
    if not slowest.batches:
        return (), "too many batches for a chart: choose a shorter range", shown
    words = f"the slowest of each step: {len(slowest.batches):,} of {slowest.number:,} batches"
    return slowest.batches, words, shown


def _figures(lately: Sequence[Batch]) -> Mapping[str, Any]:
    took = sorted(batch.duration_ms for batch in lately if batch.duration_ms is not None)
    return {
        "number": len(took),
        "p50": took[len(took) // 2] if took else None,
        "p99": took[min(len(took) - 1, len(took) * 99 // 100)] if took else None,
        "rate": lately[-1].processed_rate if lately else None,
        "points": [
            (batch.started_ms or 0, round(batch.processed_rate))
            for batch in lately
            if batch.processed_rate is not None
        ],
    }


def _durations_words(lately: Sequence[Batch]) -> str:
    if not lately:
        return ""
    took = [batch.duration_ms or 0 for batch in lately]
    return (
        f"How long each phase of batches {lately[0].batch_id:,} to {lately[-1].batch_id:,} took: "
        f"{min(took):,} to {max(took):,} ms in all."
    )


def _rows_words(lately: Sequence[Batch]) -> str:
    if not lately:
        return ""
    read = [batch.input_rows for batch in lately if batch.input_rows is not None]
    span = f"{min(read):,} to {max(read):,} rows read a batch" if read else "rows read are not reported"
    return f"Rows of batches {lately[0].batch_id:,} to {lately[-1].batch_id:,} and rows per second: {span}."


def _sources(page: _QueryPage) -> Mapping[str, Any]:
    """Return a page of the partitions that it reads; those that need attention come first."""
    parts = lag.worst_first(part for source in page.sources for part in source.parts)
    shown = page_of(parts, page.request.GET.get("parts"), _PARTITIONS)
    unread = lag.add_unread_since(shown.items, page.row.cluster_id, now_ms(page.request))
    return {"sources": page.sources, "parts": shown.with_items(unread)}


def _state(page: _QueryPage) -> Mapping[str, Any]:
    """Return the state of its operators from their files and from its listener's reports."""
    operators = page.recent[-1].operators if page.recent else []
    return {"operators": operators, "stores": operator_views(operator_states(page.row), operators)}


def _events(page: _QueryPage) -> Mapping[str, Any]:
    row = page.row
    return {"happened": subject_history(page.request, row.cluster.name, f"query:{row.ident}")}


def _facts(page: _QueryPage) -> Mapping[str, Any]:
    return {
        **checkpoint_details(page.row, page.newest),
        "open_decisions": [
            (decision, action_buttons.of_batch(page.request, page.row, decision.batch_id))
            for decision in streaming_batches.open_decisions([page.row])
        ],
        "decided": streaming_batches.decision_counts(page.row),
        "runs": streaming_queries.recent_runs(page.row),
        "how": attach_lines(page.request),
    }


#: The words of each tab, and what reads its context.
_TABS = {
    "batches": ("Batches", _batches),
    "sources": ("Sources", _sources),
    "state": ("State", _state),
    "charts": ("Charts", _charts),
    "events": ("Event history", _events),
    "facts": ("Raw facts", _facts),
}


#: Maximum listed partitions of an operator: unfolded, and with the folded ones.
_SHOWN, _FOLDED = 8, 200


def operator_views(
    states: Sequence[OperatorState], reported: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return operators with their reported rows; for two operators with one name the rows are unknown."""
    names = Counter(operator["name"] for operator in reported)
    rows = {operator["name"]: operator for operator in reported if names[operator["name"]] == 1}
    return [_operator_view(state, rows.get(state.name)) for state in states]


def _operator_view(state: OperatorState, rows: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {
        "state": state,
        "size": sum(chain.size for chain in state.chains),
        # Its listener's report after the newest batch; None without one.
        "rows": rows,
        # Damage that prevents a restart, one sentence each, the first few.
        "broken": [broken_sentence(chain) for chain in state.broken[:_SHOWN]],
        "shown": state.chains[:_SHOWN],
        "folded": state.chains[_SHOWN:_FOLDED],
        "more": max(0, len(state.chains) - _FOLDED),
    }


def checkpoint_details(row: Query, newest: Batch | None) -> Mapping[str, Any]:
    """Return the contents of a checkpoint's logs; `newest` is the newest known batch."""
    detail: Mapping[str, Any] = row.detail
    ledger = detail.get("ledger") or {}
    return {
        "detail": detail,
        "ledger_damage": ledger.get("broken", ()),
        "initial": [
            (source, json.dumps(at, separators=(",", ":")))
            for source, at in detail.get("initial", {}).items()
        ],
        "newest_decision": streaming_batches.newest_decision(row) if row.ledger_id else None,
        # None without a watermark, for which Spark writes 0.
        "watermark_ms": (newest.next_watermark_ms or newest.watermark_ms or None) if newest else None,
    }
