"""Save the history of ids inferred from lists and markers, if `__transaction_state` cannot be read."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dashboard.models import Collector, Transaction
from dashboard.runtime.collector_names import RECONCILE
from dashboard.runtime.leases import Lease
from dashboard.runtime.sql import in_portions
from dashboard.transactions import attributions, topic_tallies
from dashboard.transactions import sql as transaction_sql
from dashboard.transactions.recents import recent_rings
from fenceline.decode import text
from fenceline.decode.typed import record_of
from fenceline.facts import NOT_FROM_LOG, NOT_REPORTED, Tombstone, TransactionRecord, TransactionState
from fenceline.kafka.fold.aggregate import fold_inferred
from fenceline.kafka.fold.folded import Folded, KnownSpan, Prior
from fenceline.kafka.fold.marker_history import EndMarker, InferredRecord, infer_records
from fenceline.kafka.reconcile import Correction

#: Offsets reserved for the inferred records of one revision: they need unique offsets that no log has.
_PLACES = 1 << 20
#: The four bytes before the id in a key of the log.
_BEFORE_THE_ID = bytes(4)


class InferredCorrection(NamedTuple):
    """A correction, the id's previous state, and the inferred records in between."""

    key: bytes
    correction: Correction
    prior: Prior
    inferred: Sequence[InferredRecord]


def infer_corrections(
    cluster_id: int,
    corrections: Sequence[tuple[bytes, Correction]],
    markers: Mapping[int, Sequence[EndMarker]],
) -> Sequence[InferredCorrection]:
    """Return corrections by key with the history inferred from `markers` (by producer id)."""
    priors = _known_records(cluster_id, [key for key, _ in corrections])
    inferred_corrections = []
    for key, correction in corrections:
        prior = priors.get(key, Prior())
        own = () if prior.record is None else markers.get(prior.record.producer_id, ())
        inferred = () if correction.hidden else infer_records(prior.record, correction.record, own)
        last = inferred[-1].record if inferred else prior.record
        inferred_corrections.append(InferredCorrection(key, _with_version(correction, last), prior, inferred))
    return inferred_corrections


def _with_version(correction: Correction, last: TransactionRecord | Tombstone | None) -> Correction:
    """Return a correction with the previous record's protocol version, because reports omit it."""
    if not isinstance(correction.record, TransactionRecord) or not isinstance(last, TransactionRecord):
        return correction
    return correction._replace(record=correction.record._replace(client_version=last.client_version))


def save_history(lease: Lease, rev: int, changes: Sequence[InferredCorrection], now_ms: int) -> bool:
    """Save the inferred history of ids; return whether it has notable transitions.

    Call it in a write transaction.
    """
    folded = Folded()
    causes = attributions.action_causes(lease.cluster_id)
    place = rev * _PLACES
    for key, correction, prior, inferred in changes:
        name = correction.record.transactional_id
        log_key = _BEFORE_THE_ID + text.unescape_text(name)
        fold_inferred(folded, log_key, name, prior, inferred, place, causes.get(key, {}))
        place += len(inferred)
    transaction_sql.write_recents(lease.cluster_id, folded.newest)
    transaction_sql.write_transitions(lease.cluster_id, rev, "", folded.notable.values(), now_ms)
    transaction_sql.add_tallies(lease.cluster_id, lease.shard, folded.tallies)
    topic_tallies.add_topic_tallies(lease.cluster_id, lease.shard, folded.links)
    return bool(folded.notable)


def inferred_span(cluster_id: int) -> KnownSpan | None:
    """Return the time span with inferred history; None if history was never inferred."""
    details = Collector.objects.filter(cluster_id=cluster_id, name=RECONCILE).values_list("detail", flat=True)
    inferred = (detail for detail in details if "inferred_ms" in detail)
    return next(
        (KnownSpan(detail.get("inferred_since_ms", 0), detail["inferred_ms"]) for detail in inferred), None
    )


def _known_records(cluster_id: int, keys: Collection[bytes]) -> Mapping[bytes, Prior]:
    """Return the ids' state known from reports, with their last transitions."""
    priors = {key: Prior(packed=ring.packed) for key, ring in recent_rings(cluster_id, keys).items()}
    known = Transaction.objects.filter(cluster_id=cluster_id, log_offset=NOT_FROM_LOG)
    for transactions in in_portions(known, "key", keys):
        for row in transactions.defer("recent"):
            key, packed = bytes(row.key), priors.get(bytes(row.key), Prior()).packed
            priors[key] = Prior(TransactionState(row.state), _record_of(row), packed=packed)
    return priors


def _record_of(row: Transaction) -> TransactionRecord | None:
    """Return the report behind a row; None for a row known only from a list."""
    if row.producer_epoch == NOT_REPORTED:
        return None
    partitions = transaction_sql.unpacked_partitions(row.partitions) if row.partitions else ()
    return record_of(TransactionRecord, row, state=TransactionState(row.state), partitions=partitions)
