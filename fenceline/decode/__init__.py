"""Decoders, one file per format: bytes or text in, facts out. A decoder never raises on its input."""
