"""Figures over time, stored compactly: points at changes, minutes and hours of them. Pure.

`points` defines a point, `packing` converts points to bytes, `rollup` makes minutes and hours of them, and
`reading` reads a range of time, with its holes. `histograms` has mergeable durations.
"""
