"""What a query's checkpoint and ledger contain, as its page shows it. Pure but for two database queries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dashboard.models import Batch, Query
from dashboard.streaming import batches as streaming_batches


def checkpoint_details(row: Query, newest: Batch | None) -> Mapping[str, Any]:
    """Return what the logs of a checkpoint hold; `newest` is the newest batch that is known."""
    detail: Mapping[str, Any] = row.detail
    ledger = detail.get("ledger") or {}
    return {
        "detail": detail,
        "ledger_damage": ledger.get("broken", ()),
        "ledger_path": ledger.get("path", ""),
        "initial": [
            (source, json.dumps(at, separators=(",", ":")))
            for source, at in detail.get("initial", {}).items()
        ],
        "newest_decision": streaming_batches.newest_decision(row) if row.ledger_id else None,
        "watermark_ms": _watermark_ms(newest),
    }


def _watermark_ms(newest: Batch | None) -> int | None:
    """Return the newest watermark, None where there is none: Spark writes 0 for that."""
    return None if newest is None else newest.next_watermark_ms or newest.watermark_ms or None
