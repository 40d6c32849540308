"""Query strings, parsed without ever failing."""
