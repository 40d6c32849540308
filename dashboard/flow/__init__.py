"""Data flow: read from the stores, derived by `fenceline.flow`."""
