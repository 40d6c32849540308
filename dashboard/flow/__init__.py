"""Data flow, read from the stores and derived by `fenceline.flow`."""
