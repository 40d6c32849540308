"""Consumer groups: the collectors' stores, and queries for pages."""
