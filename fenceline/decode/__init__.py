"""One file per format: bytes or text in, facts out. A reader never raises on what it reads."""
