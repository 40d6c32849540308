"""The Django project."""

from __future__ import annotations

import gc

# What a process imports at its start stays, so looking for garbage meanwhile takes a sixth of the start for
# nothing. `apps.DashboardConfig.ready` turns it on again.
gc.disable()
