"""Pages: their rendering, and the content of their templates."""
