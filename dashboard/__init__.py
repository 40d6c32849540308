"""The Django project."""

import gc

# All objects imported at the start of a process stay, so garbage collections during it waste a sixth of the
# start. `apps.DashboardConfig.ready` turns them on again.
gc.disable()
