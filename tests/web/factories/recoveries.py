"""Recoveries for pages to show."""

from dashboard.models import Cluster, Recovery
from fenceline.decode import text
from fenceline.kafka.applications import application_of
from fenceline.kafka.transactional_ids import key_of
from tests.web.factories.clusters import now_ms


def recovery(of: Cluster, raw: bytes | str = b"payments-7", **fields: object) -> Recovery:
    """Return a recovery that is over, but for `fields`."""
    name = raw.encode() if isinstance(raw, str) else raw
    opened = now_ms() - 600_000
    number = Recovery.objects.count()
    defaults: dict[str, object] = {
        "application": application_of(text.escape_bytes(name)).application,
        "cause": "timeout",
        "confidence": "probable",
        "producer_id": 4017,
        "producer_epoch": 3,
        "topic_id": "Zr8RkY4nQ0m1w2p3c4v5bg",
        "log_partition": 7,
        "log_offset": 24_100 + number,
        "opened_ms": opened - number * 1_000,
        "begun_ms": opened - 60_900,
        "completed_ms": opened + 30,
        "released_ms": opened + 120,
        "resumed_ms": opened + 4_120,
        "resumed_by": text.escape_bytes(name),
        "closed_ms": opened + 4_120,
        "outcome": "resumed",
        "records_released": 1_770,
        "partitions": [["payments", [0, 1]]],
        "waited": [["billing", "payments", 0, 48_211, opened - 58_000, opened + 900]],
        "lost": [
            ["payments", 0, 48_211, 48_273, 63, True, ""],
            ["payments", 1, 7_000, 7_110, None, False, "the log was cut before it was read"],
            ["payments", 2, None, None, 0, True, ""],
        ],
        "lost_complete": True,
        "rev": 1,
    }
    return Recovery.objects.create(
        cluster=of, key=key_of(name), transactional_id=text.escape_bytes(name), **(defaults | fields)
    )
