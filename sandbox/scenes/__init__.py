"""Scenes: each shows one way in which transactions go wrong, on a running stack."""
