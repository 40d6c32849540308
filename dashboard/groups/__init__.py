"""Consumer groups: what collectors save, what pages read."""
