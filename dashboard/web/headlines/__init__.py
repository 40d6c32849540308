"""Pages in one sentence of fact each: the first page, the list of queries, and every detail page."""
