"""Recoveries after an abort or a fence: the stores of collectors, and the queries of pages."""
