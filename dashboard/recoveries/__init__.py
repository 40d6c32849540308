"""Recoveries after an abort or a fence: what collectors save, what pages read."""
