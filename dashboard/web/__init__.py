"""Pages: views, and the contexts of their templates."""
