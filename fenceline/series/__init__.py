"""Figures over time, kept in little space: points where something changed, minutes and hours of them. Pure.

`points` has what a point is, `packing` how points become bytes, `rollup` how minutes and hours are made of
them, and `reading` how a range of time is read, with its holes. `histograms` has durations that are merged.
"""
