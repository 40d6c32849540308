"""Pages: how they are rendered, and what they are filled with."""
