"""Operators' actions on stuck transactions, decided before anything is done: facts in, a `Plan` out. Pure."""
