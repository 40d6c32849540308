"""The seed of tests that throw dice: fixed in the gate, so that a red run can be repeated.

`make soak` sets FENCELINE_SEED to a number of its own, once for all its processes; each test prints it.
"""

import os

#: Set in the gate only to look for a run that fails.
SEED = int(os.environ.get("FENCELINE_SEED", "1"))
