"""Findings over time, and telling the world: engine and payload (pure), tick, deliver."""
