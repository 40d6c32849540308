"""Fenceline's core: facts, decoders and rules. Pure Python, no I/O, no clock, no framework."""
