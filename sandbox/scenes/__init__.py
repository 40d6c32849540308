"""Scenes: each shows one failure of transactions on a running stack."""
