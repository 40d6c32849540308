"""Where data flows: read from what stores keep, derived by `fenceline.flow`."""
