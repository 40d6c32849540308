"""Celery: one queue per tail shard, one for waiting tasks, and a beat that restarts stopped collectors.

Messages are acknowledged early. With `acks_late`, a restart of Redis during a slice would end the worker, and
a message might run several times at once. The lease row recovers lost messages.
"""

import os
import warnings

from celery import Celery
from celery.exceptions import CPendingDeprecationWarning
from celery.signals import worker_ready
from django.conf import settings

from dashboard import redis_transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
# `prepare` runs Django's checks: here they would import every page into each worker, a third of its start.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

#: Seconds between two checks for collectors without a worker.
RESTART_EVERY_S = 2.0
_EXPORT_EVERY_S = 30.0
_EXPORT = {
    "export-metrics": {
        "task": "dashboard.export_metrics",
        "schedule": _EXPORT_EVERY_S,
        "options": {"expires": _EXPORT_EVERY_S},
    }
}


def broker_url(redis_url: str) -> str:
    """Return REDIS_URL in kombu's spelling: redis-py's unix:// is redis+socket:// there."""
    if not redis_url.startswith("unix://"):
        return redis_url
    path, _, database = redis_url.removeprefix("unix://").partition("?db=")
    return f"redis+socket://{path}?virtual_host={database or 0}"


redis_transport.install()
app = Celery("fenceline")
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": 3600, "socket_keepalive": True},
    task_acks_late=False,
    task_reject_on_worker_lost=False,
    task_ignore_result=True,
    task_default_queue="default",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_proc_alive_timeout=30,
    imports=("dashboard.tasks.schedule",),
    timezone="UTC",
    beat_schedule={
        "start-missing": {
            "task": "collectors.start_missing",
            "schedule": RESTART_EVERY_S,
            "options": {"expires": RESTART_EVERY_S},
        },
    }
    | (_EXPORT if settings.OTLP_ENDPOINT else {}),
)


@worker_ready.connect
def _quiet(**_: object) -> None:
    # At every loss of a connection it announces a new default of a setting that is set above. Filter it once
    # the worker is ready, since its own start turns these warnings on.
    warnings.simplefilter("ignore", CPendingDeprecationWarning)
